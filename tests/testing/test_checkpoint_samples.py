"""Checkpoints of the kit: what is written, what the oracles say, what is drawn."""

import dataclasses
import json
import os
import re
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from shardproof.checkpoint import MultiShardSaver, ShardFileVerifier
from shardproof.testing import Layout, shards_dir, write_layout
from shardproof.testing.samples.checkpoint import (
    CheckpointMetadataState,
    CheckpointOptions,
    CheckpointShardState,
    expected_problems,
    tensor_bytes,
)
from shardproof.testing.samples.checkpoint._content import (
    ITEM_SIZES,
    harmed_shard,
    metadata_bytes,
    sealed,
)
from shardproof.testing.strategies import checkpoint_tensors, layouts
from tests.helpers import ROOT
from tests.helpers.checkpoint_reader import is_whole_checkpoint, read_checkpoint
from tests.helpers.drawing import drawn_until, examples

Make = Callable[..., Path]
LEVELS = ("present", "complete", "valid")
SHARDS, METADATA = CheckpointShardState, CheckpointMetadataState
TENSORS = [[("w", "float32", (2, 3)), ("none", "int8", (4, 0)), ("b", "bool", (2,))]] * 2

PAGE = (ROOT / "docs" / "checkpoint-kit.md").read_text()


def what_is_found() -> dict[str, tuple[str | None, ...]]:
    """What the page says of each state: the kind of problem at each level."""
    said: dict[str, tuple[str | None, ...]] = {"ok": (None, None, None)}
    rows = re.findall(r"(?m)^\| (`.*`) \| .* \| ([a-z-]+)[^|]* at (`.*`) \|$", PAGE)
    for states, kind, levels in rows:
        found = tuple(kind if f"`{level}`" in levels else None for level in LEVELS)
        said |= dict.fromkeys(re.findall(r"`(\w+)`", states), found)
    return said


FOUND = what_is_found()


def in_state(state: CheckpointShardState, **keywords: Any) -> Layout:
    """Three ranks, of which the second and the third are in a state."""
    named = {} if state is SHARDS.OK else {state.value: [1, 2]}
    return Layout(format="checkpoint", **named, **keywords)


def shard_bytes(value: Layout, rank: int) -> bytes:
    return value.read_bytes(value.shard_name(rank))


class TestLayout:
    def test_defaults_are_left_out(self) -> None:
        assert repr(Layout(format="checkpoint")) == "Layout(n_shards=3, format='checkpoint')"
        said: Any = {"stale": {1}, "tensors": TENSORS, "prefix": "a", "step": 7, "seed": 3}
        assert repr(Layout(2, format="checkpoint", **said)) == (
            "Layout(n_shards=2, format='checkpoint', stale=[1], "
            f"tensors={tuple(map(tuple, TENSORS))!r}, prefix='a', step=7, seed=3)"
        )

    @pytest.mark.parametrize(
        ("keywords", "error", "text"),
        [
            ({"n_shards": 0}, ValueError, "n_shards: expected 1 or more, found 0"),
            ({"step": -1}, ValueError, "step: expected 0 or more, found -1"),
            ({"prefix": "a/b"}, ValueError, "without a directory, found 'a/b'"),
            ({"prefix": ""}, ValueError, "without a directory, found ''"),
            ({"algorithm": "md5"}, ValueError, "expected one of sha256, sha256-tree, found 'md5'"),
            ({"metadata": "torn"}, ValueError, "metadata: expected one of ok, .* 'torn'"),
            ({"tensors": TENSORS}, ValueError, "expected those of 3 ranks, found 2"),
            ({"tensors": [[]] * 3, "flipped": [1]}, ValueError, "data in the shard of rank 1"),
            ({"tensors": [[]] * 3, "metadata": "holes"}, ValueError, "for holes to be a lie"),
            *(
                ({"n_shards": 1, "tensors": [[("twice", "int8", ()), tensor]]}, error, text)
                for tensor, error, text in [
                    (("a", "int4", ()), ValueError, "dtype: there is no 'int4'; did you mean"),
                    (("a", "int8", (1.0,)), TypeError, "shape: expected int, found 1.0"),
                    (("a", "int8", (-1,)), ValueError, "shape: expected 0 or more, found -1"),
                    (("a", "int8", (1,) * 33), ValueError, "32 dimensions or less, found 33"),
                    (("twice", "int8", ()), ValueError, "expected each name once in rank 0"),
                ]
            ),
        ],
    )
    def test_wrong_arguments(self, keywords: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            Layout(format="checkpoint", **keywords)

    def test_some_states_need_two_tensors_with_data(self) -> None:
        def refused(states: Any, tensors: Any, keyword: Callable[[Any], dict]) -> set[Any]:
            found = set()
            for state in states:
                try:
                    Layout(format="checkpoint", tensors=[[], tensors, tensors], **keyword(state))
                except ValueError:
                    found.add(state)
            return found

        number, yes_or_no, hollow = ("a", "int8", (1,)), ("b", "bool", ()), ("c", "int8", (0,))
        for tensors in ([], [hollow], [number, hollow], [number, yes_or_no], [yes_or_no, number]):
            shards = refused([*SHARDS][1:], tensors, lambda state: {state.value: [1, 2]})
            lies = refused(METADATA, tensors, lambda state: {"metadata": state})
            if tensors == [yes_or_no, number]:
                assert shards == lies == set()
            else:
                assert shards == {"flipped", "flipped_padding", "zero_tail", "stale"}
                assert lies == {"holes", "unknown_dtype", "overflowing", "overlapping"}

    @pytest.mark.parametrize("step", [0, 1, 2**53 + 1, 10**20])
    def test_a_stale_shard_is_another_one_at_any_step(self, step: int) -> None:
        tensors = [[("b", "bool", ()), ("a", "int8", (1,))]]
        for state in ("ok", "overlapping"):
            said: Any = {"tensors": tensors, "metadata": state, "stale": [0]}
            value = Layout(1, format="checkpoint", step=step, **said)
            assert harmed_shard(value, 0) != shard_bytes(value, 0)


class TestWriting:
    def test_a_name_that_the_format_lacks_is_refused_when_it_is_written(self, tmp_path) -> None:
        with pytest.raises(ValueError, match="expected names of 1 to 4096 characters"):
            write_layout(
                Layout(1, format="checkpoint", tensors=[[("", "int8", ())]]), tmp_path / "model"
            )

    def test_no_two_tensors_have_the_same_bytes(self) -> None:
        tensors = [[("a", "int64", (4,)), ("b", "int64", (4,))]] * 2
        whole = Layout(2, format="checkpoint", tensors=tensors)
        values = [whole.replace(step=step, seed=seed) for step in (1, 2) for seed in (0, 1)]
        found = {tensor_bytes(v, rank, name) for v in values for rank in (0, 1) for name in "ab"}
        assert len(found) == 16
        with pytest.raises(KeyError, match="nonsense"):
            tensor_bytes(whole, 0, "nonsense")

    @pytest.mark.parametrize("dtype", ITEM_SIZES)
    def test_numbers_are_finite_and_the_last_byte_shows(self, dtype: str) -> None:
        value = Layout(1, format="checkpoint", tensors=[[("a", dtype, (500,)), ("b", dtype, (0,))]])
        content = tensor_bytes(value, 0, "a")
        assert len(content) == 500 * ITEM_SIZES[dtype]
        assert content[-1] & 1
        assert tensor_bytes(value, 0, "b") == b""
        numbers = np.frombuffer(content, getattr(ml_dtypes, dtype, dtype))
        assert np.isfinite(numbers.astype(complex)).all()


class TestDamage:
    """What each state leaves on disk, held against the whole file."""

    def both(self, state: CheckpointShardState) -> tuple[bytes, bytes]:
        value = in_state(state)
        with shards_dir(value) as prefix:
            content = (prefix.parent / value.shard_names[1]).read_bytes()
        return shard_bytes(Layout(format="checkpoint"), 1), content

    @pytest.mark.parametrize(
        ("state", "start", "field"),
        [
            (SHARDS.WRONG_MAGIC, 0, b"SHAR"),
            (SHARDS.WRONG_RANK, 4, struct.pack("<i", 2)),
            (SHARDS.NEGATIVE_CHECKSUM, 8, b"\xff" * 4),
            (SHARDS.HUGE_CHECKSUM, 8, b"\xff\xff\xff\x7f"),
            (SHARDS.WRONG_COUNT, 76, struct.pack("<i", 4)),
            (SHARDS.NEGATIVE_DATA, 80, b"\xff" * 8),
            (SHARDS.HUGE_DATA, 80, b"\xff" * 7 + b"\x7f"),
            (SHARDS.ZERO_TAIL, 260, bytes(4)),
            (SHARDS.FLIPPED_HEADER, 12, 64),
            (SHARDS.FLIPPED_PADDING, 88, 40),
            (SHARDS.FLIPPED, 256, 8),
        ],
    )
    def test_one_field_or_one_bit(self, state, start, field) -> None:
        whole, content = self.both(state)
        if isinstance(field, int):
            bits = [(a ^ b).bit_count() for a, b in zip(whole, content, strict=True)]
            assert sum(bits) == sum(bits[start : start + field]) == 1
        else:
            assert content == whole[:start] + field + whole[start + len(field) :] != whole

    def test_of_another_step_and_of_another_rank(self) -> None:
        whole, stale = self.both(SHARDS.STALE)
        assert stale == shard_bytes(Layout(format="checkpoint", step=0), 1) != whole
        assert self.both(SHARDS.SWAPPED)[1] == shard_bytes(Layout(format="checkpoint"), 2)

    def test_whole_elsewhere(self) -> None:
        whole, content = self.both(SHARDS.OUTSIDE)
        assert content == whole
        with shards_dir(Layout(format="checkpoint", metadata="escaping")) as prefix:
            entry = json.loads(prefix.with_name("model.metadata.json").read_bytes())["shards"][2]
            path = Path(os.path.normpath(prefix.parent / entry["file"]))
            assert path.parent.parent == prefix.parent.parent
            assert path.read_bytes() == shard_bytes(Layout(format="checkpoint"), 2)

    def test_the_metadata_bit_is_one_of_the_step(self) -> None:
        for step in (0, 9, 10**20):
            whole = metadata_bytes(Layout(1, format="checkpoint", step=step)) or b""
            content = metadata_bytes(Layout(1, format="checkpoint", step=step, metadata="flipped"))
            (bits,) = [a ^ b for a, b in zip(whole, content or b"", strict=True) if a != b]
            assert bits == 1
            assert json.loads(content or b"")["step"] == step ^ 1

    def test_a_save_that_was_killed_can_be_completed(self) -> None:
        with shards_dir(Layout(2, format="checkpoint", step=7, metadata="unfinished")) as prefix:
            names = {path.name for path in prefix.parent.iterdir()}
            ends = [".shard", ".tensors.json"]
            assert names == {f"model_shard_{rank}{end}" for rank in range(2) for end in ends}
            MultiShardSaver().save_metadata(prefix, world_size=2, step=7)
            assert ShardFileVerifier().verify_checkpoint(prefix).is_valid

    @pytest.mark.parametrize("state", METADATA)
    def test_only_a_law_tells_what_is_sealed(self, state: CheckpointMetadataState) -> None:
        with shards_dir(Layout(format="checkpoint", metadata=state)) as prefix:
            path = prefix.with_name("model.metadata.json")
            readable = path.is_file() and path.stat().st_mode & 0o400
            text = path.read_bytes() if readable else None
        unsealed = {"missing", "unfinished", "pruned", "empty", "truncated", "flipped"}
        unsealed |= {"missigned", "directory", "unreadable"}
        assert (text is not None and sealed(text[:-74]) == text) == (state not in unsealed)


class TestOracles:
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("state", SHARDS)
    def test_of_shards_they_say_what_the_table_says(self, state, level) -> None:
        value, kind = in_state(state), FOUND[state][LEVELS.index(level)]
        assert expected_problems(value, level=level) == (((1, kind), (2, kind)) if kind else ())
        with shards_dir(value) as prefix:
            assert is_whole_checkpoint(prefix, level=level) == (kind is None)

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("state", METADATA)
    def test_broken_metadata_are_found_at_every_level(self, state, level) -> None:
        value = Layout(format="checkpoint", metadata=state, missing=[])
        kinds = dict.fromkeys(["missing", "unfinished", "pruned"], "missing")
        kinds |= {"unreadable": "unreadable", "directory": "not-regular"}
        expected = () if state == "ok" else ((None, kinds.get(state, "refused")),)
        assert expected_problems(value, level=level) == expected
        with shards_dir(value) as prefix:
            assert is_whole_checkpoint(prefix, level=level) == (state == "ok")

    def test_swapped_shards_of_other_sizes(self) -> None:
        tensors = [[("a", "int8", (n,))] for n in (1, 2, 2)]
        value = Layout(format="checkpoint", tensors=tensors, swapped=[0, 1, 2])
        assert expected_problems(value) == ((0, "size"), (1, "structure"), (2, "size"))

    @examples(100)
    @given(layouts(["checkpoint"], states=["ok"], metadata=st.just("ok")))
    def test_what_was_written_is_read(self, value: Layout) -> None:
        with shards_dir(value) as prefix:
            assert read_checkpoint(prefix) == [
                {each.name: tensor_bytes(value, rank, each.name) for each in tensors}
                for rank, tensors in enumerate(value.tensors)
            ]


class TestFixture:
    def test_states(self, make_checkpoint: Make) -> None:
        prefix = make_checkpoint(world_size=4, step=7, missing_ranks=[1], prefix="weights")
        assert (prefix.name, prefix.parent.name) == ("weights", "step_7")
        assert not (prefix.parent / "weights_shard_1.shard").exists()
        assert not is_whole_checkpoint(make_checkpoint(metadata="missing"), level="present")

    def test_several_in_one_tree(self, make_checkpoint: Make, tmp_path: Path) -> None:
        tree = tmp_path / "run"
        states = [{}, {"truncated_ranks": [0]}, {"metadata": "escaping"}, {"outside_ranks": [1]}]
        for step, keywords in enumerate(states):
            prefix = make_checkpoint(2, step, directory=tree / f"step_{step}", **keywords)
            assert prefix == tree / f"step_{step}" / "model"
            assert is_whole_checkpoint(prefix) == (not step)
        for step in (1, 2):
            flat = make_checkpoint(2, step, directory=tree, prefix=f"flat_{step}")
            assert is_whole_checkpoint(flat)
        with pytest.raises(FileExistsError):
            make_checkpoint(2, directory=tree / "step_1")


class TestStrategies:
    @pytest.mark.slow
    @pytest.mark.parametrize("state", ["holes", "overflowing", "pruned"])
    def test_one_lie_is_the_least_that_shows_a_bug(self, state: str) -> None:
        some = layouts(["checkpoint"], states=["missing"], metadata=st.sampled_from(["ok", state]))
        least = find(some, lambda value: value.metadata == state)
        assert least == Layout(1, format="checkpoint", metadata=state)

    @pytest.mark.exhaustive
    def test_all_sorts_of_tensors_and_metadata_come(self) -> None:
        def all_came(values: list[Layout]) -> None:
            assert {value.algorithm for value in values} == {"sha256", "sha256-tree"}
            assert {value.n_shards for value in values} == {*range(1, 9)}
            assert {value.metadata for value in values} == set(METADATA)
            ranks = [rank for value in values for rank in value.tensors]
            tensors = [tensor for rank in ranks for tensor in rank]
            assert {tensor.dtype for tensor in tensors} == ITEM_SIZES.keys()
            assert {len(tensor.shape) for tensor in tensors} == {0, 1, 2, 3, 4}
            assert {len(rank) for rank in ranks} == {0, 1, 2, 3, 4}
            assert Counter(tensor.size == 0 for tensor in tensors)[True] > 20

        drawn_until(all_came, layouts(["checkpoint"]))

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"n_ranks": 0}, ValueError, "n_ranks: expected 1 or more, found 0"),
            ({"max_tensors": -1}, ValueError, "max_tensors: expected 0 or more, found -1"),
            ({"dtypes": ["int4"]}, ValueError, "dtypes: expected some of bool.*found {'int4'}"),
            ({"dtypes": []}, ValueError, "dtypes: expected some of bool"),
        ],
    )
    def test_wrong_tensors(self, arguments, error, text) -> None:
        with pytest.raises(error, match=text):
            checkpoint_tensors(**{"n_ranks": 2} | arguments)


class TestPage:
    """What docs/checkpoint-kit.md says is so."""

    @pytest.mark.slow
    def test_it_holds_a_test_file_that_passes(self, pytester: pytest.Pytester) -> None:
        files = re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL)
        for name, text in files:
            (pytester.path / name).write_text(text)
        result = pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "-Werror", "test_my_job.py"
        )
        result.assert_outcomes(passed=11)

    def test_it_names_all_states_of_metadata(self) -> None:
        start = PAGE.index("## States of the metadata")
        rows = re.findall(r"(?m)^\| (`[^|]*`) \|", PAGE[start : PAGE.index("## What is expected")])
        assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(METADATA) - {"ok"}
        assert FOUND.keys() == set(SHARDS)

    def test_it_names_all_keywords(self) -> None:
        keywords = {field.name for field in dataclasses.fields(CheckpointOptions)} - {"n_shards"}
        named = re.findall(r"(?m)^\| `(\w+)` \| (?:[\d`]|a new|three)", PAGE)
        assert set(named) == keywords | {"world_size", "step", "directory"}

"""Checkpoints of the kit: what is written, what the oracles say, what is drawn."""

import dataclasses
import hashlib
import json
import os
import random
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from shardproof.checkpoint import MultiShardSaver, ShardFileVerifier
from shardproof.testing import Layout, shards_dir, write_layout
from shardproof.testing.contracts.strategies import (
    checkpoint_tensors,
    hostile_manifests,
    layouts,
    shard_states,
)
from shardproof.testing.samples.checkpoint import (
    CheckpointMetadataState,
    CheckpointOptions,
    CheckpointShardState,
    MakeCheckpoint,
    checkpoint_dir_maker,
    expected_problems,
    is_whole_checkpoint,
    metadata_bytes,
    read_checkpoint,
    shard_bytes,
    tensor_bytes,
)
from shardproof.testing.samples.checkpoint._content import harmed_shard
from shardproof.testing.samples.checkpoint._metadata import metadata_lies, sealed, signed
from shardproof.testing.samples.checkpoint._reading import lawful_metadata
from shardproof.testing.samples.checkpoint._states import ITEM_SIZES
from tests.helpers import ROOT
from tests.helpers.drawing import drawn, drawn_until, examples

LEVELS = ("present", "complete", "valid")
SHARDS, METADATA = CheckpointShardState, CheckpointMetadataState
TENSORS = [[("w", "float32", (2, 3)), ("none", "int8", (4, 0)), ("b", "bool", ())]] * 2

# By hand, to hold the oracles against: the kind of problem at each level.
YES = (None, None, None)
FOUND = {
    SHARDS.OK: YES,
    SHARDS.MISSING: ("missing",) * 3,
    SHARDS.EMPTY: ("empty",) * 3,
    SHARDS.TRUNCATED: (None, "size", "size"),
    SHARDS.EXTENDED: (None, "size", "size"),
    SHARDS.FLIPPED: (None, None, "digest"),
    SHARDS.FLIPPED_HEADER: (None, "structure", "structure"),
    SHARDS.FLIPPED_PADDING: (None, None, "digest"),
    SHARDS.ZERO_TAIL: (None, None, "digest"),
    SHARDS.DIRECTORY: ("not-regular",) * 3,
    SHARDS.OUTSIDE: ("not-regular",) * 3,
    SHARDS.FIFO: ("not-regular",) * 3,
    SHARDS.UNREADABLE: ("unreadable",) * 3,
    SHARDS.SWAPPED: (None, "structure", "structure"),
    SHARDS.STALE: (None, "structure", "structure"),
    SHARDS.WRONG_MAGIC: (None, "structure", "structure"),
    SHARDS.WRONG_RANK: (None, "structure", "structure"),
    SHARDS.NEGATIVE_CHECKSUM: (None, "structure", "structure"),
    SHARDS.HUGE_CHECKSUM: (None, "structure", "structure"),
    SHARDS.WRONG_COUNT: (None, "structure", "structure"),
    SHARDS.NEGATIVE_DATA: (None, "structure", "structure"),
    SHARDS.HUGE_DATA: (None, "structure", "structure"),
    SHARDS.UNCHECKED: (None, None, "unproven"),
}


def in_state(state: CheckpointShardState, **keywords: Any) -> Layout:
    """Three ranks, of which the second and the third are in a state."""
    named = {} if state is SHARDS.OK else {state.value: [1, 2]}
    return Layout(format="checkpoint", **named, **keywords)


def files_of(directory: Path) -> dict[str, Any]:
    """What lies in a directory and beside it, without opening what isn't a file."""
    return {
        os.path.relpath(path, directory): (path.lstat().st_mode, content_of(path))
        for path in directory.parent.rglob("*")
    }


def content_of(path: Path) -> bytes | None:
    readable = path.is_file() and path.stat().st_mode & 0o400
    return path.read_bytes() if readable else None


class Shard:
    """A shard as the format's table says, by struct alone."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.magic, self.rank, length = struct.unpack_from("<Iii", content)
        self.checksum = content[12 : 12 + length].decode("ascii")
        self.n_tensors, self.n_data = struct.unpack_from("<iq", content, 12 + length)
        self.data = content[24 + length :]


class TestLayout:
    @given(layouts(["checkpoint"]))
    def test_its_repr_makes_it_again(self, value: Layout) -> None:
        assert eval(repr(value)) == value

    def test_defaults_are_left_out(self) -> None:
        assert repr(Layout(format="checkpoint")) == "Layout(n_shards=3, format='checkpoint')"
        value = Layout(
            2, format="checkpoint", step=7, stale={1}, tensors=TENSORS, prefix="a", seed=3
        )
        assert repr(value) == (
            "Layout(n_shards=2, format='checkpoint', stale=[1], "
            f"tensors={tuple(map(tuple, TENSORS))!r}, prefix='a', step=7, seed=3)"
        )

    def test_it_is_a_value(self) -> None:
        one = Layout(2, format="checkpoint", stale=[1], tensors=iter(TENSORS))
        assert {one} == {Layout(2, format="checkpoint", stale=(1,), tensors=TENSORS)}
        with pytest.raises(AttributeError):
            one.step = 3  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("keywords", "error", "text"),
        [
            ({"n_shards": True}, TypeError, "n_shards: expected int, found True"),
            ({"n_shards": 0}, ValueError, "n_shards: expected 1 or more, found 0"),
            ({"step": "1"}, TypeError, "step: expected int, found '1'"),
            ({"step": -1}, ValueError, "step: expected 0 or more, found -1"),
            ({"seed": 0.5}, TypeError, "seed: expected int, found 0.5"),
            ({"prefix": "a/b"}, ValueError, "without a directory, found 'a/b'"),
            ({"prefix": ""}, ValueError, "without a directory, found ''"),
            ({"algorithm": "md5"}, ValueError, "expected one of sha256, sha256-tree, found 'md5'"),
            ({"missing": [3]}, ValueError, "missing: expected indices from 0 below 3"),
            ({"missing": [1.0]}, TypeError, "missing: expected indices of type int"),
            ({"missing": [1], "empty": [1]}, ValueError, "1 is already named under mi"),
            ({"swapped": [1]}, ValueError, "none, or two or more, found one"),
            ({"missing_ranks": [1]}, TypeError, "no 'missing_ranks'; did you mean 'missing'"),
            ({"states": ()}, TypeError, "Layout: there is no 'states'; did you mean"),
            ({"metadata": "torn"}, ValueError, "metadata: expected one of ok, .* 'torn'"),
            ({"tensors": TENSORS}, ValueError, "expected those of 3 ranks, found 2"),
            (
                {"tensors": [[]] * 3, "flipped": [1]},
                ValueError,
                "data in the shard of rank 1",
            ),
            ({"tensors": [[]] * 3, "metadata": "holes"}, ValueError, "for holes to be a lie"),
        ],
    )
    def test_wrong_arguments(self, keywords: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            Layout(format="checkpoint", **keywords)

    @pytest.mark.parametrize(
        ("tensor", "error", "text"),
        [
            ((1, "int8", ()), TypeError, "name: expected str, found 1"),
            (("", "int8", ()), ValueError, "text that is not empty, found ''"),
            (("\ud800", "int8", ()), ValueError, "expected UTF-8 text"),
            (("a", "int4", ()), ValueError, "dtype: expected one of bool, .* found 'int4'"),
            (("a", "int8", (1.0,)), TypeError, "shape: expected lengths of type int, found 1.0"),
            (("a", "int8", (-1,)), ValueError, "shape: expected lengths of 0 or more, found -1"),
            (("a", "int8", (1,) * 33), ValueError, "expected 32 dimensions or less, found 33"),
            (("twice", "int8", ()), ValueError, "expected one 'twice' in rank 0, found more"),
        ],
    )
    def test_wrong_tensors(self, tensor: Any, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            Layout(1, format="checkpoint", tensors=[[("twice", "int8", ()), tensor]])

    def test_every_state_is_a_keyword(self) -> None:
        for state in set(SHARDS) - {SHARDS.OK}:
            value = in_state(state)
            assert value.states == (SHARDS.OK, state, state)
            assert value.indices(state) == (1, 2)
        for metadata in METADATA:
            assert Layout(format="checkpoint", metadata=metadata.value).metadata is metadata

    def test_the_least_that_a_shard_must_have_for_each_state(self) -> None:
        bare, hollow = [[]] * 3, [[("a", "int8", (0,))]] * 3
        refused = {
            state
            for tensors in (bare, hollow)
            for state in SHARDS
            if not can_be_made(state, tensors)
        }
        assert refused == {SHARDS.FLIPPED, SHARDS.FLIPPED_PADDING, SHARDS.ZERO_TAIL, SHARDS.STALE}
        assert can_be_made(SHARDS.FLIPPED_PADDING, hollow)

    def test_a_stale_shard_is_another_one_at_any_step_and_where_tensors_overlap(self) -> None:
        number, yes_or_no = ("a", "int8", (1,)), ("b", "bool", (1,))
        assert not can_be_made(SHARDS.STALE, [[yes_or_no]] * 3)
        assert not can_be_said(METADATA.OVERLAPPING, [number, yes_or_no])
        said: Any = {"tensors": [[yes_or_no, number]], "stale": [0]}
        for step in (0, 1, 2**53 + 1, 10**20):
            for metadata in ("ok", "overlapping"):
                value = Layout(1, format="checkpoint", step=step, metadata=metadata, **said)
                assert harmed_shard(value, 0) != shard_bytes(value, 0)

    def test_and_the_least_for_each_lie(self) -> None:
        bare: list[Any] = []
        hollow, full = [("a", "int8", (0,))], [("b", "int8", (1,)), ("c", "int8", (0,))]
        needs = {
            "holes": [bare],
            "unknown_dtype": [bare],
            "overflowing": [bare, hollow],
            "overlapping": [bare, hollow, full],
        }
        for state in METADATA:
            refused = [each for each in (bare, hollow, full) if not can_be_said(state, each)]
            assert refused == needs.get(state, [])
            assert can_be_said(state, [*full, ("d", "int8", ())])


def can_be_made(state: CheckpointShardState, tensors: Any) -> bool:
    try:
        in_state(state, tensors=tensors)
    except ValueError:
        return False
    return True


def can_be_said(state: CheckpointMetadataState, tensors: Any) -> bool:
    try:
        Layout(2, format="checkpoint", tensors=[[], tensors], metadata=state)
    except ValueError:
        return False
    return True


class TestWriting:
    def test_where(self, tmp_path: Path) -> None:
        prefix = write_layout(Layout(2, format="checkpoint", prefix="a.b"), tmp_path / "x" / "y")
        assert prefix == tmp_path / "x" / "y" / "a.b"
        names = ["a.b.metadata.json", "a.b_shard_0.shard", "a.b_shard_1.shard"]
        assert sorted(os.listdir(prefix.parent)) == names
        write_layout(Layout(2, format="checkpoint", prefix="c"), prefix.parent)
        with pytest.raises(FileExistsError):
            write_layout(Layout(2, format="checkpoint", prefix="c"), prefix.parent)

    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_shard_is_as_the_format_says(self, rank: int, tmp_path: Path) -> None:
        value = Layout(2, format="checkpoint", tensors=TENSORS)
        prefix = write_layout(value, tmp_path)
        content = (tmp_path / f"model_shard_{rank}.shard").read_bytes()
        shard = Shard(content)
        assert content == shard_bytes(value, rank)
        assert content[:4] == bytes.fromhex("52414853")
        assert (shard.magic, shard.rank, shard.n_tensors) == (0x53484152, rank, 3)
        assert shard.n_data == len(shard.data) == 64 + 64 + 1 - 88 + 64
        assert shard.checksum == hashlib.sha256(shard.data).hexdigest()
        assert not any(content[88:128])  # before w
        assert not any(content[152:192])  # before none and b, which begin at one place
        assert content[128:152] == tensor_bytes(value, rank, "w")
        assert content[192:] == tensor_bytes(value, rank, "b") == b"\1"
        assert read_checkpoint(prefix)[rank] == {
            "w": content[128:152],
            "none": b"",
            "b": content[192:],
        }

    def test_the_metadata_are_as_the_format_says(self, tmp_path: Path) -> None:
        value = Layout(2, format="checkpoint", step=9, tensors=TENSORS)
        write_layout(value, tmp_path)
        text = (tmp_path / "model.metadata.json").read_bytes()
        document = json.loads(text)
        before, after = text[:-74], text[-74:]
        digest = hashlib.sha256(before).hexdigest()
        assert after == b'sha256:%b"}\n' % digest.encode()
        assert document.pop("checksum") == f"sha256:{digest}"
        assert text == metadata_bytes(value)
        shards = document.pop("shards")
        assert document == {
            "schema_version": 1,
            "world_size": 2,
            "step": 9,
            "timestamp": "2025-01-01T00:00:00Z",
            "sharding": {"strategy": "full", "shard_count": 2, "precision": "mixed"},
        }
        for rank, entry in enumerate(shards):
            content = shard_bytes(value, rank)
            assert entry.pop("tensors")[2] == {
                "name": "b",
                "dtype": "bool",
                "shape": [],
                "offset": 192,
                "size": 1,
                "digest": "sha256:" + hashlib.sha256(content[192:]).hexdigest(),
            }
            assert entry == {
                "rank": rank,
                "file": f"model_shard_{rank}.shard",
                "file_size": 193,
                "checksum": Shard(content).checksum,
            }

    def test_a_tree_of_digests(self, tmp_path: Path) -> None:
        tensors = [[("a", "int8", (2**20 + 5,))]]
        value = Layout(1, format="checkpoint", tensors=tensors, algorithm="sha256-tree")
        shard = Shard(shard_bytes(value, 0))
        leaves = [shard.data[: 2**20], shard.data[2**20 :]]
        tree = hashlib.sha256(b"".join(hashlib.sha256(leaf).digest() for leaf in leaves))
        assert shard.checksum == f"sha256-tree:{tree.hexdigest()}"
        assert is_whole_checkpoint(write_layout(value, tmp_path))

    def test_a_shard_without_a_checksum(self) -> None:
        value = Layout(1, format="checkpoint", unchecked=[0])
        shard = Shard(shard_bytes(value, 0))
        (entry,) = json.loads(metadata_bytes(value) or b"")["shards"]
        assert shard.checksum == entry["checksum"] == ""
        assert [tensor["digest"] for tensor in entry["tensors"]] == [None] * 3
        assert entry["tensors"][0]["offset"] == 64

    def test_no_two_tensors_have_the_same_bytes(self) -> None:
        seen = [
            tensor_bytes(
                Layout(2, format="checkpoint", step=step, seed=seed, tensors=tensors), rank, n
            )
            for step in (1, 2)
            for seed in (0, 1)
            for rank in (0, 1)
            for tensors in [[[("a", "int64", (4,)), ("b", "int64", (4,))]] * 2]
            for n in "ab"
        ]
        assert len(set(seen)) == len(seen) == 16

    @pytest.mark.parametrize("dtype", ITEM_SIZES)
    def test_numbers_are_finite_and_the_last_byte_shows(self, dtype: str) -> None:
        value = Layout(1, format="checkpoint", tensors=[[("a", dtype, (500,)), ("b", dtype, (0,))]])
        content = tensor_bytes(value, 0, "a")
        assert len(content) == 500 * ITEM_SIZES[dtype]
        assert content[-1] & 1
        assert tensor_bytes(value, 0, "b") == b""
        assert is_finite(content, dtype)

    def test_a_tensor_that_there_is_not(self) -> None:
        with pytest.raises(KeyError, match="nonsense"):
            tensor_bytes(Layout(format="checkpoint"), 0, "nonsense")


def is_finite(content: bytes, dtype: str) -> bool:
    """By the bits of the exponent, of the formats that numpy has no names for, too."""
    if dtype == "bool":
        return set(content) == {0, 1}
    forms = {"float16": "e", "float32": "f", "float64": "d", "complex64": "f", "complex128": "d"}
    if dtype == "bfloat16":
        content = b"".join(b"\0\0" + content[at : at + 2] for at in range(0, len(content), 2))
        dtype = "float32"
    if dtype.startswith("float8"):
        return not {0x7F, 0x80, 0xFF} & {*content} and all(byte & 0x7C != 0x7C for byte in content)
    if form := forms.get(dtype):
        numbers = struct.unpack(f"<{len(content) // struct.calcsize(form)}{form}", content)
        return all(abs(number) < float("inf") for number in numbers)
    return True


class TestDamage:
    """What each state leaves on disk, held against the whole file."""

    def both(self, state: CheckpointShardState) -> tuple[bytes, bytes]:
        value = in_state(state)
        with shards_dir(value) as prefix:
            content = (prefix.parent / value.shard_names[1]).read_bytes()
        return shard_bytes(Layout(format="checkpoint"), 1), content

    @pytest.mark.parametrize(
        ("state", "start", "end"),
        [
            (SHARDS.FLIPPED_HEADER, 12, 76),
            (SHARDS.FLIPPED_PADDING, 88, 128),
            (SHARDS.FLIPPED, 256, 264),
        ],
    )
    def test_one_bit(self, state: CheckpointShardState, start: int, end: int) -> None:
        whole, content = self.both(state)
        assert len(content) == len(whole) == 264
        flips = [(at, a ^ b) for at, (a, b) in enumerate(zip(whole, content, strict=True)) if a ^ b]
        ((at, bits),) = flips
        assert bits == 1
        assert start <= at < end

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
        ],
    )
    def test_one_field(self, state: CheckpointShardState, start: int, field: bytes) -> None:
        whole, content = self.both(state)
        end = start + len(field)
        assert content == whole[:start] + field + whole[end:]
        assert content != whole

    def test_a_tail_of_zeros(self) -> None:
        whole, content = self.both(SHARDS.ZERO_TAIL)
        assert content == whole[:260] + bytes(4)
        assert whole[260:] != bytes(4)

    def test_cut_and_grown(self) -> None:
        whole, content = self.both(SHARDS.TRUNCATED)
        assert content == whole[: len(content)]
        assert 88 < len(content) < len(whole)
        assert self.both(SHARDS.EXTENDED)[1] == whole + b"\0"
        assert self.both(SHARDS.EMPTY)[1] == b""

    def test_of_another_step_and_of_another_rank(self) -> None:
        whole, stale = self.both(SHARDS.STALE)
        assert stale == shard_bytes(Layout(format="checkpoint", step=0), 1) != whole
        assert len(stale) == len(whole)
        assert self.both(SHARDS.SWAPPED)[1] == shard_bytes(Layout(format="checkpoint"), 2)
        at_once = Layout(1, format="checkpoint", step=0, stale=[0])
        with shards_dir(at_once) as prefix:
            content = (prefix.parent / "model_shard_0.shard").read_bytes()
        assert content == shard_bytes(Layout(1, format="checkpoint", step=1), 0)

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
            MultiShardSaver().save_metadata(prefix, world_size=2, step=7)
            assert ShardFileVerifier().verify_checkpoint(prefix).is_valid

    def test_a_save_and_a_removal_that_were_killed(self) -> None:
        with shards_dir(Layout(2, format="checkpoint", metadata="unfinished")) as prefix:
            names = {path.name for path in prefix.parent.iterdir()}
            text = (prefix.parent / "model_shard_1.tensors.json").read_bytes()
        shards = {"model_shard_0.shard", "model_shard_1.shard"}
        assert names == shards | {"model_shard_0.tensors.json", "model_shard_1.tensors.json"}
        whole = json.loads(metadata_bytes(Layout(2, format="checkpoint")) or b"")
        note = json.loads(text)
        assert sealed(text[: -len(note["checksum"]) - len('"}\n')]) == text
        assert note == {"step": 1, "shard": whole["shards"][1], "checksum": note["checksum"]}
        with shards_dir(Layout(2, format="checkpoint", metadata="pruned")) as prefix:
            names = {path.name for path in prefix.parent.iterdir()}
        assert names == shards | {"model.metadata.json.pruned"}

    def test_no_two_states_are_the_same_on_disk(self) -> None:
        values = [in_state(state) for state in SHARDS]
        values += [
            Layout(format="checkpoint", metadata=state) for state in METADATA if state != "ok"
        ]
        seen = []
        for value in values:
            with shards_dir(value) as prefix:
                seen.append(files_of(prefix.parent))
        assert len(seen) == len(SHARDS) + len(METADATA) - 1
        assert not [one for one in seen if seen.count(one) > 1]

    @pytest.mark.parametrize("state", METADATA)
    def test_only_a_law_tells_what_is_sealed(self, state: CheckpointMetadataState) -> None:
        """A reader that knows no laws, only checksums, falls for these, and for no others."""
        with shards_dir(Layout(format="checkpoint", metadata=state)) as prefix:
            assert is_believed(prefix) == (state in SEALED)


SEALED = {
    METADATA.OK,
    METADATA.DUPLICATE_KEY,
    METADATA.UNKNOWN_FIELD,
    METADATA.OTHER_VERSION,
    METADATA.OTHER_RANKS,
    METADATA.UNLISTED,
    METADATA.ESCAPING,
    METADATA.OVERLAPPING,
    METADATA.HOLES,
    METADATA.OVERFLOWING,
    METADATA.UNKNOWN_DTYPE,
}


def is_believed(prefix: Path) -> bool:
    """Whether a reader finds no fault that proves every byte, and nothing that the fields say."""
    try:
        text = prefix.with_name(f"{prefix.name}.metadata.json").read_bytes()
        document = json.loads(text)
    except (OSError, ValueError):
        return False
    if document["checksum"] != f"sha256:{hashlib.sha256(text[:-74]).hexdigest()}":
        return False
    return all(is_kept(prefix.parent / entry["file"], entry) for entry in document["shards"])


def is_kept(path: Path, entry: dict[str, Any]) -> bool:
    content = path.read_bytes()
    shard = Shard(content)
    tensors = entry["tensors"]
    parts = [content[each["offset"] : each["offset"] + each["size"]] for each in tensors]
    digests = [f"sha256:{hashlib.sha256(part).hexdigest()}" for part in parts]
    wrapped = [wrapped_size(each) for each in tensors if each["dtype"] != "object"]
    return (
        (shard.magic, len(content), shard.n_data)
        == (0x53484152, entry["file_size"], len(shard.data))
        and hashlib.sha256(shard.data).hexdigest() == shard.checksum == entry["checksum"]
        and digests == [each["digest"] for each in tensors]
        and wrapped == [each["size"] for each in tensors if each["dtype"] != "object"]
    )


def wrapped_size(tensor: dict[str, Any]) -> int:
    """As integers of 64 bits make it."""
    size = ITEM_SIZES[tensor["dtype"]]
    for length in tensor["shape"]:
        assert length < 2**63
        size = size * length % 2**64
    return size


class TestOracles:
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("state", SHARDS)
    def test_of_shards_they_say_what_the_table_says(
        self, state: CheckpointShardState, level: str
    ) -> None:
        value, kind = in_state(state), FOUND[state][LEVELS.index(level)]
        assert expected_problems(value, level=level) == (((1, kind), (2, kind)) if kind else ())
        with shards_dir(value) as prefix:
            assert is_whole_checkpoint(prefix, level=level) == (kind is None)

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("state", METADATA)
    def test_broken_metadata_are_found_at_every_level(
        self, state: CheckpointMetadataState, level: str
    ) -> None:
        value = Layout(format="checkpoint", metadata=state, missing=[])
        kinds = dict.fromkeys(["missing", "unfinished", "pruned"], "missing")
        kinds |= {"unreadable": "unreadable", "directory": "not-regular"}
        expected = () if state == "ok" else ((None, kinds.get(state, "refused")),)
        assert expected_problems(value, level=level) == expected
        with shards_dir(value) as prefix:
            assert is_whole_checkpoint(prefix, level=level) == (state == "ok")

    def test_of_broken_metadata_nothing_is_believed(self) -> None:
        value = Layout(format="checkpoint", missing=[1], metadata="flipped")
        assert expected_problems(value) == ((None, "refused"),)

    def test_swapped_shards_of_other_sizes(self) -> None:
        tensors = [[("a", "int8", (n,))] for n in (1, 2, 2)]
        value = Layout(format="checkpoint", tensors=tensors, swapped=[0, 1, 2])
        assert expected_problems(value) == ((0, "size"), (1, "structure"), (2, "size"))

    @examples(200)
    @given(layouts(["checkpoint"]))
    def test_they_agree(self, value: Layout) -> None:
        with shards_dir(value) as prefix:
            for level in LEVELS:
                assert is_whole_checkpoint(prefix, level=level) != bool(
                    expected_problems(value, level=level)
                )

    @examples(100)
    @given(layouts(["checkpoint"], states=["ok"], metadata=st.just("ok")))
    def test_what_was_written_is_read(self, value: Layout) -> None:
        with shards_dir(value) as prefix:
            assert read_checkpoint(prefix) == [
                {each.name: tensor_bytes(value, rank, each.name) for each in tensors}
                for rank, tensors in enumerate(value.tensors)
            ]

    def test_the_reader_says_why(self, tmp_path: Path) -> None:
        prefix = write_layout(Layout(format="checkpoint", flipped=[1]), tmp_path)
        with pytest.raises(ValueError, match="expected checksum"):
            read_checkpoint(prefix)
        with pytest.raises(FileNotFoundError, match=r"other\.metadata\.json"):
            read_checkpoint(tmp_path / "other")

    def test_a_digest_that_is_another_than_the_bytes(self, tmp_path: Path) -> None:
        prefix = write_layout(Layout(1, format="checkpoint"), tmp_path)
        rewrite(prefix, lambda entry: entry["tensors"][0].update(digest="sha256:" + "0" * 64))
        assert is_whole_checkpoint(prefix, level="complete")
        assert not is_whole_checkpoint(prefix)

    def test_what_the_standard_library_cannot_compute(self, tmp_path: Path) -> None:
        prefix = write_layout(Layout(1, format="checkpoint", tensors=[[]]), tmp_path)
        checksum = f"blake3:{'0' * 64}"
        header = struct.pack("<Iii71siq", 0x53484152, 0, 71, checksum.encode(), 0, 0)
        prefix.with_name("model_shard_0.shard").write_bytes(header)
        rewrite(prefix, lambda entry: entry.update(checksum=checksum, file_size=95))
        assert is_whole_checkpoint(prefix, level="complete")
        with pytest.raises(NotImplementedError, match="checksum of blake3"):
            is_whole_checkpoint(prefix)

    def test_a_link_that_stays_inside_is_none_that_leads_outside(self, tmp_path: Path) -> None:
        prefix = write_layout(Layout(1, format="checkpoint"), tmp_path)
        shard = tmp_path / "model_shard_0.shard"
        shard.rename(tmp_path / "renamed")
        shard.symlink_to("renamed")
        assert is_whole_checkpoint(prefix)

    def test_a_level_that_there_is_not(self, tmp_path: Path) -> None:
        for ask in (
            lambda: expected_problems(Layout(format="checkpoint"), level="x"),
            lambda: is_whole_checkpoint(tmp_path, level="x"),
        ):
            with pytest.raises(ValueError, match="one of present, complete, valid, found 'x'"):
                ask()


def rewrite(prefix: Path, change: Any) -> None:
    """Change what the metadata say of the first shard, and sign that."""
    path = prefix.with_name(f"{prefix.name}.metadata.json")
    document = json.loads(path.read_bytes())
    change(document["shards"][0])
    del document["checksum"]
    path.write_bytes(signed(document))


class TestFixture:
    def test_by_default(self, make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
        prefix = make_checkpoint()
        assert prefix == tmp_path / "checkpoint-0" / "step_1" / "model"
        assert len(read_checkpoint(prefix)) == 3

    def test_states(self, make_checkpoint: MakeCheckpoint) -> None:
        prefix = make_checkpoint(world_size=4, step=7, missing_ranks=[1], prefix="weights")
        assert (prefix.name, prefix.parent.name) == ("weights", "step_7")
        assert not (prefix.parent / "weights_shard_1.shard").exists()
        assert not is_whole_checkpoint(make_checkpoint(metadata="missing"), level="present")

    def test_several_in_one_tree(self, make_checkpoint: MakeCheckpoint, tmp_path: Path) -> None:
        tree = tmp_path / "run"
        states = [{}, {"truncated_ranks": [0]}, {"metadata": "escaping"}, {"outside_ranks": [1]}]
        steps = [
            make_checkpoint(2, step, directory=tree / f"step_{step}", **keywords)
            for step, keywords in enumerate(states)
        ]
        flat = [make_checkpoint(2, step, directory=tree, prefix=f"step_{step}") for step in (1, 2)]
        assert steps[1] == tree / "step_1" / "model"
        assert flat[1] == tree / "step_2"
        whole = [is_whole_checkpoint(prefix) for prefix in steps + flat]
        assert whole == [True, False, False, False, True, True]
        with pytest.raises(FileExistsError):
            make_checkpoint(2, directory=tree / "step_1")

    def test_nothing_is_written_after_a_refusal(
        self, make_checkpoint: MakeCheckpoint, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match="already named"):
            make_checkpoint(missing_ranks=[1], empty_ranks=[1])
        assert os.listdir(tmp_path) == []

    def test_the_maker_asks_for_a_place_only_where_none_is_named(self, tmp_path: Path) -> None:
        bases = iter([tmp_path / "one"])
        with checkpoint_dir_maker(lambda: next(bases)) as make:
            assert make(1, directory=tmp_path / "named").parent == tmp_path / "named"
            assert make(1, 5).parent == tmp_path / "one" / "step_5"

    def test_the_context_manager_leaves_nothing(self) -> None:
        value = Layout(format="checkpoint", unreadable=[1], outside=[0], metadata="escaping")
        with shards_dir(value) as prefix:
            base = prefix.parent.parent
            assert len(os.listdir(base)) == 3
        assert not base.exists()


class TestStrategies:
    @pytest.mark.parametrize("state", sorted(set(SHARDS) - {SHARDS.OK, SHARDS.SWAPPED}))
    def test_one_bad_shard_is_the_least_that_shows_a_bug(self, state: CheckpointShardState) -> None:
        some = layouts(["checkpoint"], states=[state, "missing"], metadata=st.just("ok"))
        least = find(some, lambda value: state in value.states)
        assert least == Layout(1, format="checkpoint", **{state.value: [0]})

    @pytest.mark.parametrize("state", sorted(METADATA))
    def test_so_is_one_lie(self, state: CheckpointMetadataState) -> None:
        some = layouts(["checkpoint"], states=["missing"], metadata=st.sampled_from(["ok", state]))
        least = find(some, lambda value: value.metadata == state)
        assert least == Layout(1, format="checkpoint", metadata=state)

    # With each of these a shorter draw was met by chance, and not made simpler any more.
    @pytest.mark.once
    @pytest.mark.parametrize("start", [2, 3, 7, 8, 14])
    def test_what_is_whole_is_least_wherever_hypothesis_starts(self, start: int) -> None:
        some = layouts(["checkpoint"], states=["missing"], metadata=st.just("ok"))
        least = find(
            some,
            lambda value: value.metadata == "ok",
            settings=settings(max_examples=2000, database=None),
            random=random.Random(start),
        )
        assert least == Layout(1, format="checkpoint")

    @pytest.mark.once
    def test_swapped_shards_are_two(self) -> None:
        least = find(
            layouts(["checkpoint"]),
            lambda value: "swapped" in value.states,
            settings=settings(max_examples=2000, database=None),
            random=random.Random(0),  # from where others than the least were found
        )
        assert least == Layout(2, format="checkpoint", swapped=[0, 1])

    @pytest.mark.once
    def test_what_is_whole_is_common_and_so_are_ruins(self) -> None:
        def all_came(values: list[Layout]) -> None:
            assert {state for value in values for state in value.states} == set(SHARDS)
            assert {value.algorithm for value in values} == {"sha256", "sha256-tree"}
            assert {value.n_shards for value in values} == {*range(1, 9)}

        def all_metadata_came(values: list[Layout]) -> None:
            assert {value.metadata for value in values} == set(METADATA)

        drawn_until(all_came, layouts(["checkpoint"]))
        drawn_until(all_metadata_came, layouts(["checkpoint"], max_shards=1))
        values = drawn(layouts(["checkpoint"]), 360)
        whole = sum(not expected_problems(value) for value in values)
        assert len(values) / 5 < whole < len(values) * 2 / 3

    @pytest.mark.once
    def test_tensors_of_every_kind(self) -> None:
        def all_came(values: list[Layout]) -> None:
            ranks = [rank for value in values for rank in value.tensors]
            tensors = [tensor for rank in ranks for tensor in rank]
            assert {tensor.dtype for tensor in tensors} == ITEM_SIZES.keys()
            assert {len(tensor.shape) for tensor in tensors} == {0, 1, 2, 3, 4}
            assert {len(rank) for rank in ranks} == {0, 1, 2, 3, 4}
            assert Counter(tensor.size == 0 for tensor in tensors)[True] > 20
            names = [[tensor.name for rank in value.tensors for tensor in rank] for value in values]
            assert all(len(set(each)) == len(each) for each in names)

        drawn_until(all_came, layouts(["checkpoint"]))

    def test_what_is_asked_for(self) -> None:
        strategy = layouts(
            ["checkpoint"],
            max_shards=2,
            states=["stale"],
            metadata=st.sampled_from(["ok", "pruned"]),
            tensors=st.none(),
        )
        values = drawn(strategy)
        assert {state for value in values for state in value.states} == {"ok", "stale"}
        assert {value.metadata for value in values} == {"ok", "pruned"}
        assert {value.n_shards for value in values} == {1, 2}
        assert {value.tensors[0] for value in values} == {DEFAULT}

    @pytest.mark.once
    def test_tensors_that_are_asked_for(self) -> None:
        strategy = layouts(
            ["checkpoint"],
            max_shards=2,
            tensors=lambda n_ranks: checkpoint_tensors(n_ranks, max_tensors=1, dtypes=["int8"]),
        )
        values = drawn(strategy)
        ranks = [rank for value in values for rank in value.tensors]
        assert {value.n_shards for value in values} == {1, 2}
        assert {len(rank) for rank in ranks} == {0, 1}
        assert {tensor.dtype for rank in ranks for tensor in rank} == {"int8"}

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"n_ranks": 0}, ValueError, "n_ranks: expected 1 or more, found 0"),
            ({"max_tensors": -1}, ValueError, "max_tensors: expected 0 or more, found -1"),
            ({"max_tensors": 1.5}, TypeError, "max_tensors: expected int, found 1.5"),
            ({"dtypes": ["int4"]}, ValueError, "dtypes: expected some of bool.*found {'int4'}"),
            ({"dtypes": []}, ValueError, "dtypes: expected some of bool"),
        ],
    )
    def test_wrong_tensors(self, arguments: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            checkpoint_tensors(**{"n_ranks": 2} | arguments)

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"max_shards": 0}, ValueError, "max_shards: expected 1 or more, found 0"),
            ({"max_shards": 1.5}, TypeError, "max_shards: expected int, found 1.5"),
            ({"states": ["nonsense"]}, ValueError, "'nonsense' is not a valid"),
        ],
    )
    def test_wrong_arguments(self, arguments: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            layouts(["checkpoint"], **arguments)

    def test_states(self) -> None:
        assert set(drawn(shard_states(format="checkpoint"))) == set(SHARDS)
        assert find(shard_states(format="checkpoint"), lambda _: True) is SHARDS.OK
        with pytest.raises(ValueError, match="expected one or more, found none"):
            shard_states([], format="checkpoint")


DEFAULT = Layout(1, format="checkpoint").tensors[0]


@given(...)
def test_hypothesis_knows_states_by_their_type(
    shard: CheckpointShardState, metadata: CheckpointMetadataState
) -> None:
    assert isinstance(shard, CheckpointShardState)
    assert isinstance(metadata, CheckpointMetadataState)


def is_lawful(text: bytes) -> bool:
    try:
        lawful_metadata(text, "model")
    except ValueError:
        return False
    return True


LYING = [
    Layout(format="checkpoint"),
    Layout(1, format="checkpoint", algorithm="sha256-tree"),
    Layout(2, format="checkpoint", unchecked=[0]),
    Layout(1, format="checkpoint", step=0, tensors=[[("a", "bool", ()), ("b", "int8", (0,))]]),
    Layout(
        2,
        format="checkpoint",
        step=2**53 + 1,
        tensors=[[("a", "complex128", (1,)), ("b", "int8", ())]] * 2,
    ),
]


class TestHostileMetadata:
    @pytest.mark.parametrize("value", LYING, ids=["default", "tree", "unchecked", "small", "wide"])
    def test_none_is_lawful(self, value: Layout) -> None:
        assert is_lawful(metadata_bytes(value) or b"")
        lies = [*metadata_lies(value)]
        assert len(lies) > 250
        assert not [text for text in lies if is_lawful(text)]

    @examples(500)
    @given(hostile_manifests("checkpoint"))
    def test_the_kits_reader_refuses_each(self, text: bytes) -> None:
        assert not is_lawful(text)

    def test_of_another_checkpoint(self) -> None:
        value = LYING[-1]
        assert not [text for text in drawn(hostile_manifests(value)) if is_lawful(text)]
        with pytest.raises(ValueError, match="expected two tensors in rank 0"):
            hostile_manifests(Layout(1, format="checkpoint", tensors=[[]]))

    @pytest.mark.parametrize("too_long", [False, True])
    def test_only_so_long(self, too_long: bool) -> None:
        whole = metadata_bytes(Layout(1, format="checkpoint")) or b""
        room = 64 * 2**20 - len(whole) + too_long
        assert is_lawful(sealed(b" " * room + whole[:-74])) == (not too_long)

    def test_the_least_is_empty(self) -> None:
        assert find(hostile_manifests("checkpoint"), lambda _: True) == b""

    def test_most_are_sealed(self) -> None:
        texts = drawn(hostile_manifests("checkpoint"))
        n_sealed = len([text for text in texts if is_sealed(text)])
        assert len(texts) / 2 < n_sealed < len(texts)

    def test_a_gullible_reader_is_found_out(self) -> None:
        """One that goes by the checksum and by JSON, and one that asks for the fields, too."""
        believed = find(
            hostile_manifests("checkpoint"), lambda text: is_sealed(text) and fields(text)
        )
        assert json.loads(believed)["world_size"] is not None
        whole = fields(metadata_bytes(Layout(format="checkpoint")) or b"")
        texts = [text for text in metadata_lies(Layout(format="checkpoint")) if is_sealed(text)]
        assert len([text for text in texts if fields(text) == whole]) > 200


def is_sealed(text: bytes) -> bool:
    return text.endswith(b'sha256:%b"}\n' % hashlib.sha256(text[:-74]).hexdigest().encode())


def fields(text: bytes) -> list[str]:
    """The names of the fields of what may be JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [*document] if isinstance(document, dict) else []


@pytest.mark.once
class TestPage:
    """What docs/checkpoint-kit.md says is so."""

    PAGE = (ROOT / "docs" / "checkpoint-kit.md").read_text()

    def test_it_holds_a_test_file_that_passes(self, pytester: pytest.Pytester) -> None:
        files = re.findall(r'```python title="([^"]+)"\n(.*?)```', self.PAGE, re.DOTALL)
        for name, text in files:
            (pytester.path / name).write_text(text)
        result = pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "-Werror", "test_my_job.py"
        )
        result.assert_outcomes(passed=12)

    def test_it_says_what_is_found_of_each_shard(self) -> None:
        said = {}
        rows = re.findall(r"(?m)^\| (`.*`) \| .* \| ([a-z-]+)[^|]* at (`.*`) \|$", self.PAGE)
        for states, kind, levels in rows:
            at = re.findall(r"`(\w+)`", levels)
            found = tuple(kind if level in at else None for level in LEVELS)
            said |= dict.fromkeys(re.findall(r"`(\w+)`", states), found)
        assert said == {str(state): kinds for state, kinds in FOUND.items() if kinds is not YES}

    def test_it_names_all_states_of_metadata(self) -> None:
        start, end = self.PAGE.index("## States of the metadata"), self.PAGE.index("## Two oracles")
        rows = re.findall(r"(?m)^\| (`[^|]*`) \|", self.PAGE[start:end])
        assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(METADATA) - {"ok"}

    def test_it_names_all_keywords(self) -> None:
        keywords = {field.name for field in dataclasses.fields(CheckpointOptions)} - {"n_shards"}
        named = re.findall(r"(?m)^\| `(\w+)` \| (?:[\d`]|a new|three)", self.PAGE)
        assert set(named) == keywords | {"world_size", "step", "directory"}

"""What the strategies draw, to what they shrink, and what they refuse."""

import json
import re
import subprocess
import sys

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from shardproof import Metadata, ShardInfo
from shardproof.testing import DamageKind, Layout, ShardState, shards_dir
from shardproof.testing.strategies import (
    damages,
    hostile_json,
    layouts,
    manifests,
    shard_states,
)
from tests.helpers.drawing import drawn, drawn_until, examples

FOUR = {"missing", "empty", "unreadable", "directory"}


class TestLayouts:
    def test_two_are_where_shards_were_swapped(self) -> None:
        least = find(layouts(), lambda value: ShardState.SWAPPED in value.states)
        assert least == Layout(2, swapped=[0, 1])

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "number", [0, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(1, 5))]
    )
    def test_the_four_common_states_come_together_within_200_examples(self, number: int) -> None:
        values = drawn(layouts(), 200, start=number)
        assert any(set(value.states) >= FOUR for value in values)

    def test_of_the_four_only_those_that_are_asked_for(self) -> None:
        values = drawn(layouts(states=["directory", "fifo"]))
        assert {state for value in values for state in value.states} == {"ok", "directory", "fifo"}

    @pytest.mark.slow
    def test_no_named_pipe_unless_it_is_asked_for(self) -> None:
        """A loader that opens one would hang, and the test with it."""

        def all_but_one_came(values: list[Layout]) -> None:
            found = {state for value in values for state in value.states}
            assert found == {*ShardState} - {"fifo"}

        drawn_until(all_but_one_came, layouts())
        for strategy in (layouts(["saev", "checkpoint"]), st.from_type(Layout)):
            assert not any("fifo" in value.states for value in drawn(strategy))

    def test_sizes_vary(self) -> None:
        def they_vary(values: list[Layout]) -> None:
            assert {value.n_shards for value in values} == {0, 1, 2, 3}
            for name in ("examples_per_shard", "layers", "cls_token", "d_model", "labels"):
                assert len({getattr(value, name) for value in values}) > 1, name

        drawn_until(they_vary, layouts(max_shards=3))

    def test_sizes_stay_the_same_if_asked(self) -> None:
        for value in drawn(layouts(shapes=False)):
            named = {state.value: value.indices(state) for state in ShardState if state != "ok"}
            assert value == Layout(value.n_shards, **named)

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"min_shards": -1}, ValueError, "found min_shards=-1, max_shards=8"),
            ({"min_shards": 9}, ValueError, "found min_shards=9, max_shards=8"),
            ({"max_shards": True}, TypeError, "max_shards: expected int, found True"),
            ({"min_shards": 1.5}, TypeError, "min_shards: expected int, found 1.5"),
            (
                {"states": ["fiifo"]},
                ValueError,
                "states: there is no 'fiifo'; did you mean 'fifo'?",
            ),
        ],
    )
    def test_wrong_arguments_are_refused_before_any_example(self, arguments, error, text) -> None:
        with pytest.raises(error, match=text):
            layouts(**arguments)


@given(...)
def test_hypothesis_knows_layouts_by_their_type(value: Layout, state: ShardState) -> None:
    assert isinstance(value, Layout)
    assert isinstance(state, ShardState)


def test_hypothesis_knows_them_without_an_import_of_the_kit() -> None:
    script = (
        "import sys, hypothesis.strategies as st; "
        "assert 'shardproof.testing.strategies' not in sys.modules; "
        "assert 'numpy' not in sys.modules; "
        "from shardproof.testing import Layout; "
        "import warnings; warnings.simplefilter('ignore'); "
        "print(type(st.from_type(Layout).example()).__name__)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "Layout\n", run.stderr


def test_states_and_damages_are_drawn_all_and_none_is_refused() -> None:
    assert set(drawn(shard_states())) == set(ShardState)
    assert {damage.kind for damage in drawn(damages())} == set(DamageKind)
    for some in (damages, shard_states, layouts):
        with pytest.raises(ValueError, match="expected one or more, found none"):
            some([])


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_readers_must_accept_each_spelling_of_a_manifest(data: st.DataObject) -> None:
    value = data.draw(layouts())
    files = data.draw(manifests(st.just(value)))
    with shards_dir(value) as path:
        promised = Metadata.load(path), ShardInfo.load(path)
        for name, text in files.items():
            (path / name).write_bytes(text)
        assert (Metadata.load(path), ShardInfo.load(path)) == promised


class TestHostile:
    def test_json_of_every_kind(self) -> None:
        def all_came(texts: list[bytes]) -> None:
            for part in (b"NaN", b"Infinity", b"1e400", b"\\ud800", b"\xed\xa0\x80", b"\xff"):
                assert any(part in text for text in texts), part
            assert any(text.startswith(b"[[[[") for text in texts)
            assert b"" in texts
            assert any(re.search(rb'("\w+": [^,{}]+), \1\b', text) for text in texts)

        drawn_until(all_came, hostile_json())

    def test_it_spoils_the_document_that_is_given(self) -> None:
        def all_came(texts: list[bytes]) -> None:
            assert any(b'"bytes": NaN' in text for text in texts)

        def it_came(texts: list[bytes]) -> None:
            assert b"[" in texts

        document = {"index": [{"file": "a", "bytes": 117}]}
        drawn_until(all_came, hostile_json(document))
        assert json.dumps(document).encode() not in drawn(hostile_json(document))
        drawn_until(it_came, hostile_json([]))
        with pytest.raises(ValueError, match="not JSON compliant"):
            hostile_json(float("nan"))

"""One layout for every format: what all have, and what a format of somebody else gets."""

import copy
import dataclasses
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from shardproof import ManifestError, ShardInfo, validate
from shardproof.testing import (
    Layout,
    MakeShardsDir,
    SampleFormat,
    SampleOptions,
    ShardState,
    expected_findings,
    expected_unproven,
    shards_dir,
    without_root_override,
    write_layout,
)
from shardproof.testing.samples import saev
from shardproof.testing.samples._layout import FORMATS, sample_format
from shardproof.testing.samples.checkpoint import CheckpointShardState
from shardproof.testing.samples.receipts import expected_pending
from shardproof.testing.strategies import hostile_manifests, layouts
from tests.helpers import ROOT
from tests.helpers.drawing import drawn, drawn_until, examples

LEVELS: Any = ("present", "complete", "valid")
CASES = [
    Layout(missing=[1], d_model=2, labels=True),
    Layout(format="receipts", started=[1], seed=3),
    Layout(2, format="checkpoint", truncated=[1], step=7, prefix="weights"),
]


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_harm_has_the_same_word(name: str) -> None:
    """Words that mean what another word of `ShardState` means are no states."""
    form = sample_format(name)
    words = {str(state) for state in form.states}
    assert next(iter(form.states)) == "ok"
    assert {"ok", "missing", "empty", "unreadable", "directory", "truncated", "extended"} <= words
    assert not words & {"whole", "completed", "short", "long", "emptied", "cut", "grown", "gone"}


@pytest.mark.parametrize("value", CASES, ids=repr)
def test_a_layout_is_a_value(value: Layout, tmp_path: Path) -> None:
    assert eval(repr(value)) == value
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert len({value, value.replace(value.states)}) == 1
    assert value != value.replace(["ok"] * value.n_shards)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = value.nonsense
    with pytest.raises(AttributeError):
        value.states = ()  # type: ignore[misc]


@pytest.mark.parametrize("value", CASES, ids=repr)
def test_what_is_read_is_what_is_written(value: Layout, tmp_path: Path) -> None:
    whole = value.replace(["ok"] * value.n_shards)
    path = write_layout(whole, tmp_path / Path(whole.folder).name)
    directory = path.parent if value.format.is_prefix else path
    names = {os.path.relpath(file, directory) for file in directory.rglob("*") if not file.is_dir()}
    assert names == {*whole.file_names, *whole.manifest_names}
    for name in names:
        assert (directory / name).read_bytes() == value.read_bytes(name), name
    with pytest.raises(ValueError, match=r"name: expected one of .*, found 'nonsense'"):
        value.read_bytes("nonsense")


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_written_to_the_path_that_is_given(name: str, tmp_path: Path) -> None:
    """What leads outside leads beside it, also where the path is a link."""
    value = Layout(3, format=name, **{"escaping" if name == "receipts" else "outside": [1]})
    (tmp_path / "deep/real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/real")
    rest = Path(value.folder).name if name in {"checkpoint", "hf-cache"} else ""
    to = tmp_path / "link" / rest
    assert write_layout(value, to) == to
    report = validate(to, level="complete")
    found = {(each.kind.value, each.path) for each in report.findings}
    assert found == {*expected_findings(value, tmp_path / "deep/real" / rest, level="complete")}
    assert found
    directory, shard = to.parent if value.format.is_prefix else to, value.shard_name(1)
    way = directory / (f"../{shard}" if name == "receipts" else shard)
    assert way.read_bytes() == value.read_bytes(shard)


@pytest.mark.parametrize("name", FORMATS)
def test_a_place_that_is_taken_is_refused_and_nothing_is_lost(name: str, tmp_path: Path) -> None:
    value = Layout(3, format=name)
    to = tmp_path / "new" / Path(value.folder).name
    taken = to.parent / value.manifest_names[0] if value.format.is_prefix else to / "notes.txt"
    taken.parent.mkdir(parents=True)
    taken.write_text("of somebody")
    text = f"expected a new place, found '{taken.name}': '{taken.parent}'"
    with pytest.raises(FileExistsError, match=text):
        write_layout(value, to)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [taken]
    assert taken.read_text() == "of somebody"
    taken.unlink()
    assert write_layout(value, os.path.relpath(to)) == to
    with pytest.raises(FileExistsError):
        write_layout(value, to)


def test_a_checkpoint_is_written_to_its_prefix(tmp_path: Path) -> None:
    value = Layout(format="checkpoint", prefix="weights")
    with pytest.raises(ValueError, match=r"to: expected a path that ends in '/weights', found"):
        write_layout(value, tmp_path / "made/model")
    assert not [*tmp_path.iterdir()]
    beside = Layout(format="checkpoint", prefix="model")
    for each in (value, beside):
        assert validate(write_layout(each, tmp_path / each.prefix), level="valid").ok


@pytest.mark.slow
@examples(200)
@given(
    st.one_of(
        layouts([name], states=[*sample_format(name).states])
        for name in FORMATS
        if name not in {"saev", "checkpoint"}
    )
    | layouts(["checkpoint"], states=[*CheckpointShardState], metadata=st.just("ok"))
)
def test_the_report_is_what_the_oracle_expects(value: Layout) -> None:
    refused = ""
    with without_root_override(), shards_dir(value) as path:
        for level in LEVELS:
            try:
                report = validate(path, level=level, format=value.format.name)
            except ManifestError as error:
                refused = error.problem
                break
            order = sorted if value.format.name in {"receipts", "checkpoint"} else list
            found = order((finding.kind.value, finding.path) for finding in report.findings)
            assert found == order(expected_findings(value, path, level=level)), level
            assert report.unproven == expected_unproven(value, path, level=level), level
    if refused:
        assert refused.startswith("no shard is completed")
        assert len(expected_pending(value, level="present")) == value.n_shards


@given(layouts(FORMATS))
def test_its_repr_makes_it_again(value: Layout) -> None:
    assert eval(repr(value)) == value


def test_an_unknown_state_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="states: there is no 'mising'; did you mean 'missing'"):
        Layout.of(["ok", "mising"])


@pytest.mark.parametrize("name", FORMATS)
def test_the_fixture_makes_each_and_it_is_recognized(name, make_shards_dir) -> None:
    report = validate(make_shards_dir(format=name), level="valid")
    assert (report.format, report.ok) == (name, True), str(report)


@pytest.mark.parametrize("name", ["saev", "receipts", "checkpoint"])
def test_the_fixture_makes_damage_of_each(name: str, make_shards_dir: MakeShardsDir) -> None:
    path = make_shards_dir(4, format=name, missing_shards=[1], truncated=[2])
    kinds = {finding.kind.value for finding in validate(path, level="complete").findings}
    assert kinds == {"missing", "size"}


LEAST: dict[str, set[str]] = {
    "saev": {"missing", "fifo", "sparse"},
    "receipts": {"missing", "torn", "placeholder"},
    "checkpoint": {"stale", "zero_tail", "unchecked"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "states"),
    [(name, LEAST.get(name, {"truncated"})) for name in FORMATS],
)
def test_one_bad_shard_is_the_least_that_shows_a_bug(name: str, states: set[str]) -> None:
    only: Any = {"metadata": st.just("ok")} if name == "checkpoint" else {}
    for state in states:
        some = layouts([name], states=[state], **only)
        least = find(some, lambda value, state=state: state in value.states)
        assert least == Layout(1, format=name, **{state: [0]})
    other = least.replace(seed=1)
    assert repr(other) == repr(least)[:-1] + ", seed=1)"
    assert other.read_bytes(other.shard_names[0]) != least.read_bytes(least.shard_names[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_drawn", "fewest", "most"),
    [
        ("saev", 2400, 0.2, 0.5),
        pytest.param("receipts", 1800, 0.1, 0.5, marks=pytest.mark.exhaustive),
        pytest.param("checkpoint", 360, 0.2, 2 / 3, marks=pytest.mark.exhaustive),
    ],
)
def test_what_is_whole_is_common_and_so_are_ruins(name, n_drawn, fewest, most) -> None:
    def all_came(values: list[Layout]) -> None:
        states = {state for value in values for state in value.states}
        assert states == {*sample_format(name).states}
        assert any("ok" not in value.states for value in values if value.n_shards > 2)

    some = layouts([name], min_shards=1, states=[*sample_format(name).states])
    drawn_until(all_came, some)
    values = drawn(some, n_drawn)
    whole = [value for value in values if value.replace(["ok"] * value.n_shards) == value]
    whole = [value for value in whole if name != "checkpoint" or value.metadata == "ok"]
    assert fewest < len(whole) / len(values) < most


@examples(200)
@given(hostile_manifests("saev"))
def test_no_reader_may_accept_a_hostile_manifest(text: bytes) -> None:
    with shards_dir(Layout(1)) as path:
        (path / "shards.json").write_bytes(text)
        with pytest.raises(ManifestError):
            ShardInfo.load(path)


def manifest_names(_: Layout) -> list[str]:
    return ["index.json"]


def write_nothing(_: Layout, to: Path) -> None:
    pass


@pytest.fixture
def mine() -> SampleFormat:
    """What docs/testing-kit.md writes."""
    page = (ROOT / "docs" / "testing-kit.md").read_text()
    (text,) = re.findall(r'```python title="my_format.py"\n(.*?)```', page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(text, names)
    form = names["FORMAT"]
    assert isinstance(form, SampleFormat)
    return form


class TestAFormatOfOnesOwn:
    def test_it_has_a_layout_and_an_oracle(self, mine: SampleFormat) -> None:
        value = Layout(4, format=mine, missing=[1], truncated=[2])
        assert repr(value) == "Layout(n_shards=4, format='mine', missing=[1], truncated=[2])"
        with shards_dir(value) as path:
            assert json.loads((path / "index.json").read_bytes()) == [*value.file_names]
            assert [kind for kind, _ in expected_findings(value, path)] == ["missing"]
            assert [kind for kind, _ in expected_findings(value, path, level="complete")] == [
                "missing",
                "size",
            ]
            unproven = expected_unproven(value, path, level="valid")
            assert unproven == (path / "0.bin", path / "3.bin")

    def test_options_that_are_no_dataclass_are_refused(self, mine: SampleFormat) -> None:
        class Options(SampleOptions):
            least_shards: ClassVar[int] = 1
            width: int = 3

        class NoFields(SampleOptions):
            least_shards: ClassVar[int] = 1

        text = r"expected @dataclass\(frozen=True\) above class Options, or width would be no"
        with pytest.raises(TypeError, match=text):
            dataclasses.replace(mine, options=Options)
        form = dataclasses.replace(mine, options=dataclasses.dataclass(frozen=True)(Options))
        assert Layout(format=form, width=4).width == 4
        assert Layout(format=dataclasses.replace(mine, options=NoFields)).n_shards == 3

    def test_the_fixture_makes_it(self, mine: SampleFormat, make_shards_dir: MakeShardsDir) -> None:
        path = make_shards_dir(2, format=mine, missing=[0])
        assert sorted(os.listdir(path)) == ["1.bin", "index.json"]

    def test_the_strategy_draws_it(self, mine: SampleFormat) -> None:
        least = find(layouts([mine]), lambda value: "socket" in value.states)
        assert least == Layout(1, format=mine, socket=[0])
        assert set(least.states) == {ShardState.SOCKET}

    def test_a_copy_keeps_it_though_it_has_the_name_of_another(self) -> None:
        value = Layout(format=dataclasses.replace(saev.FORMAT, folder=lambda _: "shards"))
        assert copy.deepcopy(value) == value
        assert copy.deepcopy(value) != Layout()

    def test_one_of_functions_is_sent_to_other_processes(self) -> None:
        form = SampleFormat(
            name="mine",
            options=saev.SaevOptions,
            manifest_names=manifest_names,
            read_bytes=Layout.read_bytes,
            write=write_nothing,
        )
        value = Layout(2, format=form, missing=[1])
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_layout_imports_its_own_format_only() -> None:
    code = "from shardproof.testing import Layout; Layout(); import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in run.stdout.split() if name.startswith("shardproof.testing.")}
    assert "shardproof.testing.samples.saev" in loaded
    others = ("receipts", "checkpoint")
    assert not {name for name in loaded if name.startswith("shardproof.testing.faults")}
    assert not {f"shardproof.testing.samples.{name}" for name in others} & loaded

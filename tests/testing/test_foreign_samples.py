"""Sample directories of others' formats: as the libraries write them, and as the oracle says."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given

from shardproof import formats, validate
from shardproof.testing import (
    Layout,
    ShardState,
    expected_findings,
    expected_unproven,
    shards_dir,
    without_root_override,
    write_layout,
)
from shardproof.testing.strategies import layouts
from tests.helpers.drawing import examples

FOREIGN = ("mds", "webdataset", "parquet", "safetensors", "hf-cache", "digests")
LEVELS = ("present", "complete", "valid")


def said(report) -> list[tuple[str, str]]:
    return [(each.kind.value, os.fspath(each.path)) for each in report.findings]


@pytest.mark.parametrize("form", FOREIGN)
def test_it_is_whole_and_of_its_format(form: str, tmp_path: Path) -> None:
    path = write_layout(Layout(n_shards=3, format=form), tmp_path)
    for level in LEVELS:
        report = validate(path, level=level)
        assert (report.format, report.ok) == (form, True), str(report)


@examples(150)
@given(layouts(formats=FOREIGN))
def test_the_report_is_what_the_oracle_expects(value: Layout) -> None:
    with shards_dir(value) as path, without_root_override():
        for level in LEVELS:
            report = validate(path, format=value.format.name, level=level)
            expected = expected_findings(value, path, level=level)
            assert said(report) == [(kind, os.fspath(at)) for kind, at in expected], level
            assert report.unproven == expected_unproven(value, path, level=level), level


@pytest.mark.parametrize("form", FOREIGN)
@pytest.mark.parametrize("state", ["missing", "empty", "unreadable", "directory", "truncated"])
def test_one_bad_shard(form: str, state: str, make_shards_dir) -> None:
    """What the issue's users write: the fixture, a format, a state."""
    path = make_shards_dir(3, format=form, **{state: [1]})
    with without_root_override():
        report = validate(path, level="valid" if form == "digests" else "complete")
    unlisted = form == "webdataset" and state == "missing"
    assert report.ok == unlisted, str(report)


@pytest.mark.parametrize("form", FOREIGN)
def test_a_directory_is_linear_to_write(form: str, tmp_path: Path, monkeypatch) -> None:
    """Names are made as often for twice the shards: twice as often."""
    value = Layout(n_shards=2, format=form)
    calls = []
    real = type(value.options).shard_name
    monkeypatch.setattr(
        type(value.options), "shard_name", lambda self, index: calls.append(1) or real(self, index)
    )
    counts = []
    for n_shards in (20, 40):
        calls.clear()
        write_layout(Layout(n_shards=n_shards, format=form), tmp_path / str(n_shards))
        counts.append(len(calls))
    assert counts[1] <= 2.2 * counts[0]


class TestLibraries:
    """What reads these formats reads them."""

    def test_parquet(self, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        path = write_layout(Layout(n_shards=2, format="parquet"), tmp_path)
        for file in sorted(path.glob("*.parquet")):
            assert pq.read_table(file).num_rows > 0

    def test_safetensors(self, tmp_path: Path) -> None:
        from safetensors.numpy import load_file

        path = write_layout(Layout(n_shards=2, format="safetensors"), tmp_path)
        index = json.loads((path / "model.safetensors.index.json").read_text())
        for file in sorted(path.glob("*.safetensors")):
            tensors = load_file(file)
            assert {name for name, at in index["weight_map"].items() if at == file.name} == {
                *tensors
            }

    def test_webdataset(self, tmp_path: Path) -> None:
        import tarfile

        path = write_layout(Layout(n_shards=2, format="webdataset"), tmp_path)
        for file in sorted(path.glob("*.tar")):
            with tarfile.open(file) as archive:
                assert archive.getnames()

    def test_hf_cache(self, tmp_path: Path) -> None:
        from huggingface_hub import scan_cache_dir

        path = write_layout(Layout(n_shards=2, format="hf-cache"), tmp_path)
        found = scan_cache_dir(path.parent)
        assert not found.warnings
        [repo] = found.repos
        assert repo.nb_files >= 3

    def test_digests(self, tmp_path: Path) -> None:
        import subprocess

        path = write_layout(Layout(n_shards=2, format="digests"), tmp_path)
        subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=path, check=True)


def test_they_are_named_where_a_name_is_wrong() -> None:
    with pytest.raises(ValueError, match="hf-cache"):
        Layout(n_shards=1, format="nonsense")
    assert {*FOREIGN} <= {*formats.names()}


def test_a_layout_can_be_sent_elsewhere() -> None:
    import pickle

    value = Layout(n_shards=2, format="mds", hashes=["sha1"], missing=[1])
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert again.states[1] is ShardState.MISSING

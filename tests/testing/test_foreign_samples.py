"""Sample directories of others' formats: as the libraries write them, and as the oracle says."""

import json
import subprocess
from pathlib import Path

import pytest

from shardproof import validate
from shardproof.testing import (
    Layout,
    write_layout,
)

FOREIGN = ("mds", "webdataset", "parquet", "safetensors", "hf-cache", "digests")


@pytest.mark.parametrize("form", FOREIGN)
def test_it_is_whole_and_of_its_format(form: str, make_shards_dir) -> None:
    report = validate(make_shards_dir(3, format=form), level="valid")
    assert (report.format, report.ok) == (form, True), str(report)


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
        path = write_layout(Layout(n_shards=2, format="digests"), tmp_path)
        subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=path, check=True)

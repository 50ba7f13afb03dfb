"""Sample directories of others' formats: as the libraries write them, and as the oracle says."""

import contextlib
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.testing import (
    Layout,
    write_layout,
)


def rows_of_parquet(path: Path) -> bool:
    import pyarrow.parquet as pq

    return all(pq.read_table(file).num_rows > 0 for file in path.glob("*.parquet"))


def tensors_of_safetensors(path: Path) -> bool:
    from safetensors.numpy import load_file

    placed = json.loads((path / "model.safetensors.index.json").read_text())["weight_map"]
    tensors = {name: file.name for file in path.glob("*.safetensors") for name in load_file(file)}
    return tensors == placed


def names_of_webdataset(path: Path) -> bool:
    with contextlib.ExitStack() as stack:
        archives = [stack.enter_context(tarfile.open(file)) for file in path.glob("*.tar")]
        return all(archive.getnames() for archive in archives)


def files_of_hf_cache(path: Path) -> bool:
    from huggingface_hub import scan_cache_dir

    found = scan_cache_dir(path.parent)
    return not found.warnings and [repo.nb_files >= 3 for repo in found.repos] == [True]


def sums_of_digests(path: Path) -> bool:
    command = ["sha256sum", "-c", "--strict", "SHA256SUMS"]
    return subprocess.run(command, cwd=path, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "reads",
    [
        rows_of_parquet,
        tensors_of_safetensors,
        names_of_webdataset,
        files_of_hf_cache,
        sums_of_digests,
    ],
)
def test_what_reads_these_formats_reads_them(reads: Callable[[Path], bool], tmp_path: Path) -> None:
    form = reads.__name__.partition("_of_")[2].replace("_", "-")
    layout = Layout(n_shards=2, format=form)
    assert reads(write_layout(layout, tmp_path / layout.folder))

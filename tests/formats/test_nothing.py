"""What writers leave for nothing (no rows, samples, tensors, members) is whole, as its reader says.

Directories of parquet, in `parquet-empty`, `parquet-dask` and `parquet-spark`, and of TFRecord are
among the golden ones; here are smaller ones, byte for byte as the libraries wrote them.
"""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shardproof import validate


def npy(array: np.ndarray) -> bytes:
    text = io.BytesIO()
    np.save(text, array)
    return text.getvalue()


def tar() -> bytes:
    text = io.BytesIO()
    tarfile.open(fileobj=text, mode="w").close()
    return text.getvalue()


def arrow(as_file: bool) -> bytes:
    text, schema = io.BytesIO(), pa.schema([("a", pa.int64())])
    (pa.ipc.new_file if as_file else pa.ipc.new_stream)(text, schema).close()
    return text.getvalue()


SAFE = b'{"__metadata__":{},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
NOTHING: dict[str, Mapping[str, bytes]] = {
    "numpy, no items": {"a.npy": npy(np.zeros((0, 5), np.uint32)), "b.npy": npy(np.array(3))},
    "safetensors, no tensor": {"model.safetensors": b"\x08\0\0\0\0\0\0\0{}      "},
    "safetensors, no item": {"model.safetensors": len(SAFE).to_bytes(8, "little") + SAFE},
    "webdataset": {"a.tar": tar(), "b.tar.gz": gzip.compress(tar())},
    "streaming": {"index.json": b'{"shards": [], "version": 2}'},
    "datasets": {"state.json": b'{"_data_files": []}', "dataset_info.json": b"{}"},
    "datasets, no split": {"dataset_dict.json": b'{"splits": []}'},
    "pyarrow": {
        "state.json": b'{"_data_files": [{"filename": "a.arrow"}, {"filename": "b.arrow"}]}',
        "dataset_info.json": b"{}",
        "a.arrow": arrow(as_file=True),
        "b.arrow": arrow(as_file=False),
    },
    "Megatron-LM": {
        "a.bin": b"",
        "a.idx": b"MMIDIDX\0\0" + b"\1" + bytes(7) + b"\4" + bytes(8) + b"\1" + bytes(15),
    },
    "llm.c": {"a.bin": np.array([20240520, 1] + [0] * 254, "<i4").tobytes()},
}


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("what", NOTHING)
def test_nothing_is_no_damage(tmp_path: Path, what: str, level: str) -> None:
    for name, data in NOTHING[what].items():
        (tmp_path / name).write_bytes(data)
    report = validate(tmp_path, level=level, strict=True)
    assert report.ok, str(report)

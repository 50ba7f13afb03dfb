"""Arrays and numbers in files of all kinds, records, and models."""

import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from ._cases import CHECKOUTS, case, cases, checkout, package


@case(package("array-record"))
def array_record(to: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for index in range(2):
        writer = ArrayRecordWriter(f"{to}/rows.array_record-{index:05}-of-00002", "group_size:1")
        for n in range(20):
            writer.write(b"row %d" % n * index * 400)
        writer.close()


@case(package("h5py"))
def hdf5(to: Path) -> None:
    """Of the oldest structure and the newest, and behind bytes of a user."""
    import h5py
    import numpy as np

    kinds = {"old": {}, "new": {"libver": "latest"}, "user": {"userblock_size": 512}}
    for name, how in kinds.items():
        with h5py.File(to / f"{name}.h5", "w", **how) as file:
            file["a"] = np.arange(60, dtype=np.uint16)
            file.create_dataset("group/b", data=np.ones((9, 4), "f4"), chunks=(3, 4))


@case(package("numpy"))
def npz(to: Path) -> None:
    import numpy as np

    ids = (np.arange(6000) * 7919 % 2**16).astype(np.uint16)
    arrays = {"ids": ids, "mask": np.ones((5, 3), bool)}
    np.savez(to / "train_0.npz", **arrays)
    np.savez_compressed(to / "train_1.npz", **arrays, nothing=np.zeros((0, 4)))


def of_zarr(version: str) -> Callable[[], str | None]:
    writer = package("zarr")
    return lambda: said if (said := writer() or "").startswith(f"zarr {version}.") else None


@case(of_zarr("2"))
def zarr_2(to: Path) -> None:
    import numcodecs
    import numpy as np
    import zarr

    root = zarr.open_group(str(to), mode="w")
    root.attrs["missing"] = float("nan")
    root.create_dataset("raw", data=np.arange(30, dtype="i4"), chunks=7, compressor=None)
    for name in ("Blosc", "Zstd", "GZip", "Zlib", "BZ2"):
        codec = getattr(numcodecs, name)()
        root.create_dataset(f"packed/{name}", data=np.arange(40), chunks=20, compressor=codec)
    deep = {"dimension_separator": "/", "compressor": None}
    root.create_dataset("deep", data=np.ones((4, 4), "f8"), chunks=(2, 4), **deep)
    zarr.consolidate_metadata(str(to))


@case(of_zarr("3"))
def zarr_3(to: Path) -> None:
    import numpy as np
    import zarr

    root = zarr.open_group(str(to), mode="w")
    root.create_array("raw", data=np.arange(30, dtype="i4"), chunks=(7,), compressors=None)
    root.create_array("a/zstd", data=np.arange(40), chunks=(20,))
    root.create_array("a/shards", data=np.arange(96), chunks=(6,), shards=(48,))
    zarr.consolidate_metadata(str(to))


def batches(to: Path, name: str, kind: str) -> None:
    import pyarrow as pa

    rows = pa.table({"id": list(range(40)), "text": [f"row {n}" for n in range(40)]})
    with getattr(pa.ipc, f"new_{kind}")(str(to / name), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=15)


@case(package("pyarrow"))
def arrow_ipc(to: Path) -> None:
    for index, kind in enumerate(("stream", "file")):
        batches(to, f"data-{index:05}-of-00002.arrow", kind)


@case(package("pyarrow"))
def feather(to: Path) -> None:
    import pyarrow as pa
    from pyarrow.feather import write_feather

    rows = pa.table({"id": list(range(40)), "text": [f"row {n}" for n in range(40)]})
    for version, compression in ((1, None), (2, "zstd")):
        write_feather(rows, f"{to}/v{version}.feather", compression, version=version)


def model(*, elsewhere: bool) -> Callable[[Path], None]:
    def write(to: Path) -> None:
        import numpy as np
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        tensors = [numpy_helper.from_array(np.full(64, n, "f4"), f"w{n}") for n in range(3)]
        nodes = [
            helper.make_node("Add", [f"w{n}" if n else "x", f"w{n + 1}"], [f"y{n}"])
            for n in range(2)
        ]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("x", "y1")
        ]
        graph = helper.make_graph(nodes, "adds", ends[:1], ends[1:], tensors)
        how = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0}
        onnx.save(helper.make_model(graph), to / "model.onnx", **(how if elsewhere else {}))

    return write


cases(package("onnx"), onnx=model(elsewhere=False), onnx_external=model(elsewhere=True))


@case(checkout("nanoGPT"))
def nanogpt(to: Path) -> None:
    """By its script for Shakespeare's characters, with another text."""
    script = (CHECKOUTS["nanoGPT"] or Path()) / "data/shakespeare_char/prepare.py"
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copy(script, place)
        Path(place, "input.txt").write_text("".join(f"To be {n}, or not\n" for n in range(30)))
        with mock.patch.dict(sys.modules, requests=mock.MagicMock()):
            runpy.run_path(copy)
        for name in ("train.bin", "val.bin", "meta.pkl"):
            shutil.copy(Path(place, name), to)

"""Arrays and numbers in files of all kinds, records, and models."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("array-record")
def array_record(root: Path) -> Iterable[object]:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    paths = [f"{root}/rows.array_record-{index:05}-of-00002" for index in range(2)]
    source = ArrayRecordDataSource(paths)
    return source.__getitems__([*range(len(source))])


@reader("hdf5")
def hdf5(root: Path) -> Iterable[object]:
    import h5py

    for path in sorted(root.glob("*.h5")):
        with h5py.File(path) as file:
            yield from ((path.name, name, file[name][()].tolist()) for name in ("a", "group/b"))


@reader("npz")
def npz(root: Path) -> Iterable[object]:
    import numpy as np

    for path in sorted(root.glob("*.npz")):
        with np.load(path) as arrays:
            yield from ((path.name, name, arrays[name].tolist()) for name in arrays)


@reader("zarr-2", "zarr-3")
def zarr(root: Path) -> Iterable[object]:
    import zarr as library

    group = library.open_consolidated(str(root))
    names = {
        "zarr-2": [
            "raw",
            "deep",
            *(f"packed/{n}" for n in ("Blosc", "Zstd", "GZip", "Zlib", "BZ2")),
        ],
        "zarr-3": ["raw", "a/zstd", "a/shards"],
    }
    for name in names[root.name]:
        yield name, group[name][:].tolist()


@reader("arrow-ipc")
def arrow_ipc(root: Path) -> Iterable[object]:
    import pyarrow as pa

    for index, read in enumerate((pa.ipc.open_stream, pa.ipc.open_file)):
        with read(str(root / f"data-{index:05}-of-00002.arrow")) as file:
            yield from file.read_all().to_pylist()


@reader("feather")
def feather(root: Path) -> Iterable[object]:
    from pyarrow.feather import read_table

    for path in sorted(root.glob("*.feather")):
        yield from ((path.name, row) for row in read_table(path).to_pylist())


@reader("onnx", "onnx-external")
def onnx(root: Path) -> Iterable[object]:
    import onnx as library
    from onnx import numpy_helper

    model = library.load(root / "model.onnx")
    library.checker.check_model(model)
    for tensor in model.graph.initializer:
        yield tensor.name, numpy_helper.to_array(tensor).tolist()


@reader("nanogpt")
def nanogpt(root: Path) -> Iterable[object]:
    """As its train.py, and the script that samples."""
    import numpy as np

    for name in ("train", "val"):
        yield from np.memmap(root / f"{name}.bin", np.uint16, mode="r").tolist()
    yield len((root / "meta.pkl").read_bytes())

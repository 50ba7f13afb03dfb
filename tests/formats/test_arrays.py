"""Arrays, records and numbers in single files: the laws of what the real libraries wrote."""

import contextlib
import io
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardproof import ManifestError, formats, seal, validate
from tests.formats.looking import found_in, of_golden, said_of
from tests.helpers.commands import run


def patched(path: Path, at: int, data: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + data + whole[at + len(data) :])


HDF5 = {
    "another signature": ("old.h5", lambda file: patched(file, 0, b"x"), "the signature of HDF5"),
    "version": ("old.h5", lambda file: patched(file, 8, b"\7"), "a superblock of HDF5, version 0"),
    "length": ("old.h5", lambda file: patched(file, 13, b"\3"), "a superblock of HDF5, version 0"),
    "cut": ("old.h5", lambda file: os.truncate(file, 3000), "7432 bytes, as the superblock says"),
    "longer": ("new.h5", lambda file: os.truncate(file, 9000), "2312 bytes, as the superblock"),
    "behind a user's": ("user.h5", lambda file: os.truncate(file, 7000), "7944 bytes, as the"),
    "another end": (
        "new.h5",
        lambda file: patched(file, 29, b"\1"),
        "264 bytes, as the superblock",
    ),
    "no root group": (
        "new.h5",
        lambda file: patched(file, 48, bytes(4)),
        "the root group at byte 48",
    ),
    "no old root": (
        "old.h5",
        lambda file: patched(file, 96, bytes(4)),
        "the root group at byte 96",
    ),
}


@pytest.mark.parametrize("what", HDF5)
def test_the_superblock_of_hdf5(tmp_path: Path, what: str) -> None:
    name, harm, expected = HDF5[what]
    path = of_golden("hdf5", tmp_path)
    harm(path / name)
    assert found_in(path) == [("structure", name)]
    [(said, _)] = said_of(path)
    assert said.startswith(expected)


def test_a_file_of_hdf4_has_no_law(tmp_path: Path) -> None:
    (tmp_path / "a.hdf").write_bytes(b"\x0e\3\x13\1" + bytes(300))
    assert validate(tmp_path, level="valid").ok


def test_hdf5_that_has_a_writer(tmp_path: Path) -> None:
    """Or whose writer was killed: the mark stays until `h5clear` takes it away."""
    h5py = pytest.importorskip("h5py")
    for name, how in {"old.h5": {}, "new.h5": {"libver": "latest"}}.items():
        file = h5py.File(tmp_path / name, "w", **how)
        file["a"] = np.arange(3000)
        assert [kind for kind, _ in found_in(tmp_path)] == ["structure"], name
        file.flush()  # then its size is as it says
        said = [expected for expected, _ in said_of(tmp_path)]
        assert said == (["a file that was closed"] if how else []), name
        file.close()
        assert validate(tmp_path, level="valid").ok


def hdf5_kinds() -> dict[str, dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {
        f"{strategy}-{persist}-{libver}": {
            "fs_strategy": strategy,
            "fs_persist": persist,
            "libver": libver,
        }
        for strategy in ("fsm", "page", "aggregate", "none")
        for persist in (False, True)
        for libver in ("earliest", "latest")
    }
    kinds |= {f"user-{n}": {"userblock_size": n, "libver": "latest"} for n in (512, 2048, 65536)}
    kinds["aligned"] = {"alignment_threshold": 1, "alignment_interval": 4096}
    kinds |= {"core": {"driver": "core"}, "stdio": {"driver": "stdio"}, "1.8": {"libver": "v108"}}
    return kinds


@pytest.mark.slow
@pytest.mark.parametrize("kind", hdf5_kinds())
def test_sound_files_of_hdf5(tmp_path: Path, kind: str) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w", **hdf5_kinds()[kind]) as file:
        file["a"] = np.arange(5000)
        file["b"] = np.arange(50)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["a"]
        file.create_dataset("c", (1000, 50), "f4", chunks=(10, 10), compression="gzip")[:9] = 1
    assert validate(tmp_path, level="valid", strict=True).ok


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_file_of_hdf5_that_is_several(tmp_path: Path, libver: str) -> None:
    h5py = pytest.importorskip("h5py")
    parts = {"driver": "split", "meta_ext": b"-m.h5", "raw_ext": b"-r.h5"}
    for name, how in {"a": parts, "b-%d.h5": {"driver": "family", "memb_size": 4096}}.items():
        with h5py.File(tmp_path / name, "w", libver=libver, **how) as file:
            file["a"] = np.arange(2000)
    assert validate(tmp_path, level="valid").ok
    assert len([*tmp_path.iterdir()]) == 7


def test_two_files_of_hdf5_whose_names_are_those_of_parts(tmp_path: Path) -> None:
    path = of_golden("hdf5", tmp_path)
    (path / "a-m.h5").write_bytes((path / "old.h5").read_bytes())
    (path / "a-r.h5").touch()
    assert found_in(path, "present") == [("empty", "a-r.h5")]


def npz(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def npy(array: np.ndarray) -> bytes:
    text = io.BytesIO()
    np.save(text, array)
    return text.getvalue()


NPZ: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "cut": (lambda file: os.truncate(file, 5000), "complete", "the end of a zip file"),
    "longer": (
        lambda file: file.write_bytes(file.read_bytes() + bytes(9)),
        *("complete", "12515 bytes, to the end of zip"),
    ),
    "its begin is gone": (
        lambda file: file.write_bytes(file.read_bytes()[9:]),
        *("complete", "the directory of members before byte"),
    ),
    "not an array": (lambda file: npz(file, a=b"x" * 300), "complete", "'a.npy': the header of a"),
    "a short array": (
        lambda file: npz(file, a=npy(np.arange(90))[:-1]),
        *("complete", "'a.npy': 848 bytes, as its header says"),
    ),
    "no member": (
        lambda file: patched(file, 0, b"xx"),
        *("complete", "'ids.npy': a member of a zip file"),
    ),
    "other numbers": (
        lambda file: patched(file, 9000, b"xx"),
        *("valid", "'ids.npy': a member of a zip file"),
    ),
}


@pytest.mark.parametrize("what", NPZ)
def test_archives_of_arrays(tmp_path: Path, what: str) -> None:
    path = of_golden("npz", tmp_path)
    harm, level, expected = NPZ[what]
    harm(path / "train_0.npz")
    assert validate(path, level="complete").ok == (level == "valid")
    [finding] = validate(path, level="valid").findings
    assert finding.expected.startswith(expected)


def test_a_directory_of_an_archive_has_a_limit(tmp_path: Path) -> None:
    """What it takes of memory is what a file of any size says of itself."""
    n_bytes = 2**24 + 1
    end = struct.pack("<4s8xIIH", b"PK\5\6", n_bytes, 0, 0)
    (tmp_path / "a.npz").write_bytes(bytes(n_bytes) + end)
    [(expected, found)] = said_of(tmp_path)
    assert expected == f"the directory of members before byte {n_bytes}"
    assert found == f"one of {n_bytes} bytes at byte 0"


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_could_unpack_to_any_size_is_neither_read_nor_proven(
    tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A MiB of bzip2 unpacks to 20 GB at once, and xz takes as much memory as it says."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", kind) as file:
        file.writestr("a.npy", npy(np.arange(300)))
    monkeypatch.setattr(zipfile.ZipExtFile, "read", None)
    report = validate(tmp_path, level="valid")
    assert (report.ok, report.n_proven, len(report.unproven)) == (True, 0, 1)


def test_an_archive_of_a_secret_is_not_proven(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", npy(np.arange(300)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    for at in (6, data.rindex(b"PK\1\2") + 8):
        data[at] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    report = validate(tmp_path, level="valid")
    assert (report.ok, report.n_proven, len(report.unproven)) == (True, 0, 1)


SOUND_NPZ = {
    "objects": {"a": np.array([1, "a"], object)},
    "fields": {"a": np.zeros(4, [("x", "f4")]), "b": np.array(3), "c": np.zeros((0, 3))},
    "names": {"é漢/x": np.ones(3)},
    "none": {},
}


@pytest.mark.parametrize("what", SOUND_NPZ)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_sound_archives(tmp_path: Path, what: str, save: Any) -> None:
    save(tmp_path / "a.npz", **SOUND_NPZ[what])
    report = validate(tmp_path, level="valid", strict=True)
    assert (report.ok, report.n_proven) == (True, 1)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as file:
        file.writestr("more.npy", npy(np.arange(3)))
        file.writestr("note.txt", "no array")
        file.comment = b"a comment"
    assert validate(tmp_path, level="valid").ok


ROWS = pa.table({"a": list(range(40)), "b": pa.array(["x", "yz"] * 20).dictionary_encode()})


def arrow(path: Path, make: Any, rows: pa.Table = ROWS, **options: Any) -> Path:
    with make(str(path), rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows, max_chunksize=15)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd"},
        {"metadata_version": pa.ipc.MetadataVersion.V4},
        {"use_legacy_format": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["arrow", "arrows", "feather", "ipc"])
def test_sound_files_and_streams(tmp_path: Path, make: Any, options: Any, suffix: str) -> None:
    arrow(tmp_path / f"a.{suffix}", make, **options)
    file = arrow(tmp_path / f"none.{suffix}", make, ROWS.slice(0, 0), **options)
    assert validate(tmp_path, level="valid", strict=True).ok
    os.truncate(file, file.stat().st_size - 1)
    assert found_in(tmp_path) == [("structure", file.name)]


def test_feather_is_cut_or_zeros(tmp_path: Path) -> None:
    path = of_golden("feather", tmp_path)
    for name in ("v1.feather", "v2.feather"):
        whole = (path / name).read_bytes()
        for data in (whole[:-1], whole[: len(whole) // 2], whole + b"\0", whole[:8] + bytes(900)):
            (path / name).write_bytes(data)
            assert found_in(path) == [("structure", name)]
        (path / name).write_bytes(whole)


def test_arrow_without_its_state(tmp_path: Path) -> None:
    """Files that are numbered are a set; if their rows are described, they had a state, too."""
    path = of_golden("arrow-ipc", tmp_path)
    assert formats.detect(str(path)).name == "arrow-ipc"
    (path / "data-00001-of-00002.arrow").unlink()
    assert found_in(path) == [("missing", "data-00001-of-00002.arrow")]
    saved = of_golden("arrow", tmp_path)
    (saved / "state.json").unlink()
    with pytest.raises(ManifestError, match=r"state\.json.*there is no such file"):
        validate(saved)
    (saved / "dataset_info.json").unlink()
    assert validate(saved, level="complete").ok


ARRAY_RECORD = {
    "another signature": (0, b"x", "the signature of ArrayRecord"),
    "a chunk": (64 + 8, b"\1", "a chunk at byte"),
    "a longer chunk": (64 + 8, b"\0\0\0\1", "the chunk at byte 64, to byte"),
    "a kind of chunk": (64 + 24, b"x", "a chunk at byte 64"),
    "no postscript": (65536 + 64, bytes(100), "a postscript in the last block"),
    "no footer": (
        65536 + 70,
        b"\x08\1\x10\xde\xc0\xeb\xfe\x84\xce\xc3\xc9\x71",
        "the footer at byte 1",
    ),
}


@pytest.mark.parametrize("what", ARRAY_RECORD)
def test_chunks_of_array_record(tmp_path: Path, what: str) -> None:
    path = of_golden("array-record", tmp_path)
    at, data, expected = ARRAY_RECORD[what]
    patched(path / "rows.array_record-00000-of-00002", at, data)
    [(said, _)] = said_of(path)
    assert said.startswith(expected)


def test_array_record_is_of_whole_blocks_and_of_a_set(tmp_path: Path) -> None:
    path = of_golden("array-record", tmp_path)
    first, second = sorted(path.iterdir())
    os.truncate(first, 65536)
    second.unlink()
    assert found_in(path) == [("structure", first.name), ("missing", second.name)]
    os.truncate(first, 131073)
    assert said_of(path)[0] == ("whole blocks of 64 KiB", "131073 bytes")


OPTIONS = [
    *("group_size:1", "group_size:1,uncompressed", "group_size:65536,zstd:3", "brotli:4"),
    *("group_size:1,pad_to_block_boundary:true", "group_size:7,snappy", "transpose:true"),
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("n_records", "n_bytes"), [(0, 0), (3, 200_000), (40, 400)])
def test_sound_array_records(tmp_path: Path, options: str, n_records: int, n_bytes: int) -> None:
    library = pytest.importorskip("array_record.python.array_record_module")
    writer = library.ArrayRecordWriter(str(tmp_path / "a.array_record"), options)
    for _record in range(n_records):
        writer.write(os.urandom(n_bytes))
    writer.close()
    assert validate(tmp_path, level="valid", strict=True).ok


def test_an_array_record_of_more_chunks_than_are_looked_at(tmp_path: Path) -> None:
    library = pytest.importorskip("array_record.python.array_record_module")
    writer = library.ArrayRecordWriter(str(tmp_path / "a.array_record"), "group_size:1")
    for n in range(5000):
        writer.write(b"%d" % n)
    writer.close()
    assert validate(tmp_path, level="valid").ok
    os.truncate(tmp_path / "a.array_record", 2**17)
    assert found_in(tmp_path) == [("structure", "a.array_record")]


def test_numbers_without_a_header(tmp_path: Path) -> None:
    """The type is a part of the format's name; what tells nothing is not detected."""
    path = of_golden("nanogpt", tmp_path)
    os.truncate(path / "val.bin", 97)
    assert said_of(path) == [("a multiple of 2 bytes, the size of an item", "97 bytes")]
    assert validate(path, level="complete", format="bin:uint8").ok
    assert validate(path, level="complete", format="bin:uint8").format == "bin:uint8"
    (path / "train.bin").rename(path / "tokens.bin")
    with pytest.raises(ManifestError, match="of no known format"):
        validate(path)
    assert (
        run("validate", path, "--format", "bin", "--dtype", "int8", "--level", "valid").exit_code
        == 0
    )
    assert (
        run("validate", path, "--format", "bin", "--dtype", "uint16", "--level", "valid").exit_code
        == 1
    )
    done = run("repair", path, "--dtype", "int8", "--from", path.parent, "--format", "bin")
    assert done.exit_code == 0, done.output
    assert run("validate", path, "--format", "npy", "--dtype", "uint16").exit_code == 2
    assert run("validate", path, "--format", "bin", "--dtype", "text").exit_code == 2
    with pytest.raises(ValueError, match="expected a type such as uint16, int32 or bfloat16"):
        formats.get("bin:U4")


def test_what_yields_takes_no_directory_from_others(tmp_path: Path) -> None:
    """Such files lie beside others, and a list knows of more than they do; a seal does not."""
    for name in ("hdf5", "npz", "onnx", "arrow-ipc", "array-record"):
        path = of_golden(name, tmp_path)
        assert formats.detect(str(path)).name == name
        np.save(path / "a.npy", np.arange(3))
        np.save(path / "b.npy", np.arange(3))
        np.save(path / "c.npy", np.arange(3))
        assert formats.detect(str(path)).name == "npy"
        for each in path.glob("*.npy"):
            each.unlink()
        seal(path)
        assert formats.detect(str(path)).name == name
        (path / "SHA256SUMS").rename(path / "all.sha256")
        assert formats.detect(str(path)).name == "digests"


NAMES = [
    *("array-record", "arrow-ipc", "feather", "hdf5", "nanogpt", "npz", "onnx-external"),
    *("zarr-2", "zarr-3"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_get_a_verdict(name: str, tmp_path: Path) -> None:
    """Whatever numbers say, no look ends in an error, and none counts as one that failed."""
    path, drawn = of_golden(name, tmp_path), random.Random(name)
    files = [each for each in path.rglob("*") if each.is_file()]
    for _ in range(120):
        file = drawn.choice(files)
        whole = file.read_bytes()
        for _ in range(drawn.randint(1, 4)):
            ends = drawn.choice([0, max(0, len(whole) - 100), drawn.randrange(len(whole))])
            at = ends + drawn.randrange(100)
            patched(file, at % len(whole), drawn.choice([b"\xff" * 8, drawn.randbytes(3), b"\0"]))
        with contextlib.suppress(ManifestError):
            report = validate(path, level="valid")
            assert all(finding.conclusive for finding in report.findings), str(report)
        file.write_bytes(whole)

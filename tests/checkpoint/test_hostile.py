"""Whatever a checkpoint's files say: a short error, little memory, and nothing else is touched."""

import copy
import json
import os
import pickle
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.checkpoint import (
    MultiShardLoader,
    MultiShardSaver,
    ShardFileVerifier,
    latest_checkpoint,
)
from shardproof.errors import CheckpointError
from tests.helpers import checkpoint_files as files
from tests.helpers.saving import peak_below, saved

MIB = 2**20
PATIENCE = 60
"""Seconds after which a test ends that hangs, at a FIFO for example."""


# What is opened or unpickled while somebody watches. An audit hook can't be taken away again.

_seen: list[tuple[str, Any]] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in {"open", "pickle.find_class", "os.listdir", "os.scandir"}:
        _seen.append((event, arguments[0]))


sys.addaudithook(_audit)


@contextmanager
def watched() -> Iterator[list[tuple[str, Any]]]:
    global _seen  # noqa: PLW0603
    _seen = []
    try:
        yield _seen
    finally:
        _seen = None


@pytest.fixture(autouse=True)
def _no_hanging() -> Iterator[None]:
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("template")
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    saved(path / "x", ({f"w{n}": weight, f"b{n}": np.arange(5)} for n in range(2)), step=7)
    return path


@pytest.fixture
def prefix(template: Path, tmp_path) -> Path:
    """The prefix of a copy; beside its directory are files that nobody may open."""
    shutil.copytree(template, tmp_path / "ckpt")
    for rank in range(2):
        shutil.copyfile(files.shard_path(template / "x", rank), tmp_path / f"x_shard_{rank}.shard")
    return tmp_path / "ckpt" / "x"


def lie(prefix: Path, change: Callable[[dict[str, Any]], object]) -> None:
    said = files.metadata_of(prefix)
    change(said)
    files.metadata_path(prefix).write_bytes(files.signed(said))


READS: list[Callable[[MultiShardLoader, str], object]] = [
    lambda loader, prefix: [loader.load_shard(prefix, rank) for rank in range(2)],
    lambda loader, prefix: loader.load_all_shards(prefix),
    lambda loader, prefix: loader.load_tensors(prefix),
    lambda loader, prefix: loader.load_tensors(prefix, mapped=True),
    lambda loader, prefix: list(loader.iter_tensors(prefix)),
]


def assert_refused(prefix: Path, about: Path, *, level: str = "valid") -> None:
    """Every way to read says that this file is bad, and opens nothing that it shouldn't."""
    loader = MultiShardLoader(level=level)
    for read in READS:
        with watched() as seen, pytest.raises(CheckpointError) as caught:
            read(loader, str(prefix))
        assert os.fspath(caught.value.path) == os.fspath(about)
        text = str(caught.value)
        assert os.fspath(about) in text
        assert len(text) < 4000
        assert_inside(prefix.parent, seen)
    with watched() as seen:
        result = ShardFileVerifier().verify_checkpoint(str(prefix))
    assert not result.is_valid
    assert any(os.fspath(about) in error for error in result.errors), result.errors
    assert_inside(prefix.parent, seen)
    assert latest_checkpoint(prefix.parent) is None


def assert_inside(directory: Path, seen: list[tuple[str, Any]]) -> None:
    """Nothing was unpickled, and no file was opened that isn't the checkpoint's."""
    around = os.fspath(directory.parent)
    for event, what in seen:
        assert event != "pickle.find_class"
        if isinstance(what, (str, bytes, os.PathLike)) and event == "open":
            path = os.fsdecode(what)
            assert ".." not in path.split("/")
            assert path not in {"/etc/passwd", "/dev/zero"}
            if os.path.isabs(path) and path.startswith(around) and path != around:
                assert path == os.fspath(directory) or path.startswith(f"{directory}/")


def test_the_audit_sees_what_is_opened(prefix: Path) -> None:
    """The control: a reader that follows names out of the directory."""
    lie(prefix, put("shards", 0, "file", "../x_shard_0.shard"))
    said = files.metadata_of(prefix)
    with watched() as seen:
        (prefix.parent / said["shards"][0]["file"]).read_bytes()
    with pytest.raises(AssertionError):
        assert_inside(prefix.parent, seen)
    with watched() as seen:
        pickle.loads(pickle.dumps(Path))
    with pytest.raises(AssertionError):
        assert_inside(prefix.parent, seen)


def put(*where: Any) -> Callable[[Any], None]:
    """Return what puts the last argument at the place that the others lead to."""
    *path, last, value = where

    def change(said: Any) -> None:
        for key in path:
            said = said[key]
        said[last] = value

    return change


T = "shards", 0, "tensors", 0

LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "step too huge to print": put("step", "BIG"),
    "out by ..": put("shards", 0, "file", "../x_shard_0.shard"),
    "absolute, its own": put("shards", 0, "file", "OWN"),
    "checksum with a newline": lambda said: put(
        "shards", 0, "checksum", said["shards"][0]["checksum"] + "\n"
    )(said),
    "checksum of a MiB": put("shards", 0, "checksum", "0" * MIB),
    "shape whose product overflows to its size": put(*T, "shape", [2**32, 2**32, 6]),
    "shape 2**63 - 1, often": put(*T, "shape", [2**63 - 1] * 32),
    "nothing of much": put(*T, "shape", [0, 2**63]),
    "file larger": put("shards", 0, "file_size", 2**62),
    "all larger, by one lie": lambda said: enlarge(said, 2**50),
}
"""Those that could reach beyond the directory or the memory; `checkpoint_lies` has them all."""


def enlarge(said: dict[str, Any], n: int) -> None:
    """Let the last tensor be huge, with everything in the metadata consistent."""
    shard = said["shards"][0]
    tensor = shard["tensors"][-1]
    tensor["shape"], tensor["size"] = [n], 8 * n
    shard["file_size"] = tensor["offset"] + 8 * n


LEVELS = ["valid", pytest.param("complete", marks=pytest.mark.exhaustive)]


@pytest.mark.slow
@pytest.mark.parametrize("what", LIES)
@pytest.mark.parametrize("level", LEVELS)
def test_metadata_that_lies(prefix: Path, what: str, level: str) -> None:
    lie(prefix, LIES[what])
    path = files.metadata_path(prefix)
    own = str(files.shard_path(prefix, 0)).encode()
    data = path.read_bytes()[: -files.TAIL].replace(b'"OWN"', b'"%b"' % own)
    data = data.replace(b'"BIG"', b"9" * 5000)
    path.write_bytes(files.sign(data + b'"}'))
    is_consistent = what == "all larger, by one lie"  # which only the shard gives away
    with peak_below(16 * MIB):
        assert_refused(prefix, files.shard_path(prefix, 0) if is_consistent else path, level=level)


class TestMetadataText:
    def refused(self, prefix: Path, data: bytes) -> None:
        files.metadata_path(prefix).write_bytes(data)
        assert_refused(prefix, files.metadata_path(prefix))

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"\x80\x04N.",  # a pickle
            b'{"schema_version": 1',
        ],
    )
    @pytest.mark.parametrize("is_signed", [False, True])
    def test_no_metadata(self, prefix: Path, data: bytes, is_signed: bool) -> None:
        self.refused(prefix, files.sign(data + b', "checksum": ""}') if is_signed else data)

    @pytest.mark.parametrize("name", ["step", "checksum"])
    def test_a_key_that_stands_twice(self, prefix: Path, name: str) -> None:
        said = files.metadata_of(prefix)
        text = files.signed(said)[: -files.TAIL] + b'"}'
        twice = b'{"%b": %b, ' % (name.encode(), json.dumps(said[name]).encode())
        self.refused(prefix, files.sign(twice + text[1:]))

    def test_the_checksum_is_of_another_field(self, prefix: Path) -> None:
        """It stands at the end, and what is named checksum says something else."""
        said = files.metadata_of(prefix)
        del said["timestamp"]
        said["checksum"] = f"sha256:{'0' * 64}"
        text = json.dumps({**said, "timestamp": ""}).encode()
        self.refused(prefix, files.sealed(text.removesuffix(b'"}')))

    def test_the_checksum_has_more_before_it(self, prefix: Path) -> None:
        body = files.metadata_path(prefix).read_bytes()[: -files.TAIL] + b"and "
        self.refused(prefix, files.sealed(body))

    def test_more_than_64_mib(self, prefix: Path) -> None:
        path = files.metadata_path(prefix)
        os.truncate(path, 64 * MIB + 1)
        with peak_below(4 * MIB):
            assert_refused(prefix, path)


class TestHeaders:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("at", "field"),
        [
            (0, b"SHAR"),
            (4, b"\1\0\0\0"),
            (8, b"\xff\xff\xff\xff"),
            (8, b"\xff\xff\xff\x7f"),
            (8, b"\x41\0\0\0"),
            (12, b"\xff\xfe"),
            (76, b"\3\0\0\0"),
            (80, b"\xff" * 8),
            (80, b"\xff" * 7 + b"\x7f"),
        ],
    )
    @pytest.mark.parametrize("level", LEVELS)
    def test_a_field_that_lies(self, prefix: Path, at: int, field: bytes, level: str) -> None:
        path = files.shard_path(prefix, 0)
        data = bytearray(path.read_bytes())
        data[at : at + len(field)] = field
        path.write_bytes(data)
        with peak_below(4 * MIB):
            assert_refused(prefix, path, level=level)

    def test_a_shard_that_holds_a_pickle(self, prefix: Path) -> None:
        bomb = pickle.dumps(os.getcwd)
        saved(prefix, [{"a": np.frombuffer(bomb, np.uint8)}] * 2, overwrite=True)
        with watched() as seen:
            (first, _) = MultiShardLoader().load_all_shards(str(prefix))
        assert first["a"].tobytes() == bomb
        assert_inside(prefix.parent, seen)


class TestFiles:
    @pytest.mark.parametrize(
        "kind", ["link out", "device", "loop", "fifo", "directory", "socket", "nothing"]
    )
    @pytest.mark.parametrize("file_path", [lambda p: files.shard_path(p, 0), files.metadata_path])
    def test_what_is_no_file(self, prefix: Path, monkeypatch, file_path, kind: str) -> None:
        path, outside = file_path(prefix), prefix.parent.parent / "outside"
        path.rename(outside)
        monkeypatch.chdir(path.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as server:
            if kind == "fifo":
                os.mkfifo(path)
            elif kind == "directory":
                path.mkdir()
            elif kind == "socket":
                server.bind(path.name)
            elif kind != "nothing":
                path.symlink_to({"link out": outside, "device": "/dev/zero", "loop": path}[kind])
            assert_refused(prefix, path)

    def test_notes_that_lie(self, prefix: Path) -> None:
        """Who writes the metadata compares records with shards."""
        arrays, saver = {"w": np.arange(6.0)}, MultiShardSaver(sync=False)
        for change in [
            put("shard", "file_size", 2**62),
            put("shard", "file", "../x_shard_0.shard"),
            put("shard", "checksum", "0" * 64),
            put("shard", "rank", 1),
            put("shard", "tensors", []),
            put("shard", "tensors", 0, "size", 2**62),
            put("shard", "more", 1),
            put("more", 1),
            put("step", -1),
            lambda said: None,  # the seal
        ]:
            for rank in range(2):
                saver.save_shard(prefix, rank, arrays, overwrite=True)
            path = files.record_path(prefix, 0)
            said = json.loads(path.read_bytes())
            before = copy.deepcopy(said)
            change(said)
            path.write_bytes(files.signed(said))
            if said == before:
                path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
            with watched() as seen, pytest.raises(CheckpointError) as caught:
                saver.save_metadata(prefix, world_size=2)
            named = path, files.shard_path(prefix, 0)
            assert any(f"'{name}'" in str(caught.value) for name in named)
            assert_inside(prefix.parent, seen)
            assert not files.metadata_path(prefix).exists()

"""Whatever a checkpoint's files say: a short error, little memory, and nothing else is touched."""

import copy
import hashlib
import itertools
import json
import os
import pickle
import re
import shutil
import signal
import socket
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.checkpoint import (
    MultiShardLoader,
    MultiShardSaver,
    ShardFileVerifier,
    latest_checkpoint,
)
from shardproof.errors import CheckpointError
from tests.helpers import checkpoint_files as files

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
    """A directory with a small whole checkpoint."""
    path = tmp_path_factory.mktemp("template")
    saver = MultiShardSaver(sync=False)
    for rank in range(2):
        arrays = {
            f"w{rank}": np.arange(6, dtype=np.float32).reshape(2, 3),
            f"b{rank}": np.arange(5),
        }
        saver.save_shard(str(path / "x"), rank, arrays)
    saver.save_metadata(str(path / "x"), world_size=2, step=7)
    return path


@pytest.fixture
def prefix(template: Path, tmp_path) -> Path:
    """The prefix of a copy; beside its directory are files that nobody may open."""
    shutil.copytree(template, tmp_path / "ckpt")
    for rank in range(2):
        shutil.copyfile(files.shard_path(template / "x", rank), tmp_path / f"x_shard_{rank}.shard")
    return tmp_path / "ckpt" / "x"


def lie(prefix: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the metadata says, and sign it."""
    said = files.metadata_of(prefix)
    change(said)
    files.metadata_path(prefix).write_bytes(files.signed(said))


READS: dict[str, Callable[[MultiShardLoader, str], object]] = {
    "load_shard": lambda loader, prefix: [loader.load_shard(prefix, rank) for rank in range(2)],
    "load_all_shards": lambda loader, prefix: loader.load_all_shards(prefix),
    "load_tensors": lambda loader, prefix: loader.load_tensors(prefix),
    "mapped": lambda loader, prefix: loader.load_tensors(prefix, mapped=True),
    "iter_tensors": lambda loader, prefix: list(loader.iter_tensors(prefix)),
}


def assert_refused(prefix: Path, about: Path, *, level: str = "valid") -> str:
    """Every way to read says that this file is bad, and opens nothing that it shouldn't.

    Returns:
        What is said.
    """
    loader, text = MultiShardLoader(level=level), ""
    for how, read in READS.items():
        with watched() as seen, pytest.raises(CheckpointError) as caught:
            read(loader, str(prefix))
        assert os.fspath(caught.value.path) == os.fspath(about), how
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
    return text


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
        if value is GONE:
            del said[last]
        else:
            said[last] = value

    return change


GONE = object()
T = "shards", 0, "tensors", 0

LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "ranks twice": put("shards", 1, "rank", 0),
    "ranks swapped": lambda said: said["shards"].reverse(),
    "a shard less": lambda said: said["shards"].pop(),
    "world huge": lambda said: (
        said.update(world_size=2**40) or put("sharding", "shard_count", 2**40)(said)
    ),
    "another shard count": put("sharding", "shard_count", 3),
    "another version": put("schema_version", 2),
    "step too huge to print": put("step", "BIG"),
    "an unknown field of a shard": put("shards", 0, "path", "/etc/passwd"),
    "out by ..": put("shards", 0, "file", "../x_shard_0.shard"),
    "absolute, its own": put("shards", 0, "file", "OWN"),
    "another rank's": put("shards", 0, "file", "x_shard_1.shard"),
    "the metadata": put("shards", 0, "file", "x.metadata.json"),
    "checksum of nobody": put("shards", 0, "checksum", "md5:" + "0" * 32),
    "checksum with a newline": lambda said: put(
        "shards", 0, "checksum", said["shards"][0]["checksum"] + "\n"
    )(said),
    "checksum of a MiB": put("shards", 0, "checksum", "0" * MIB),
    "digest too short": put(*T, "digest", "xxh3-128:00"),
    "dtype by numpy's sign": put(*T, "dtype", "<f4"),
    "shape whose product overflows to its size": put(*T, "shape", [2**32, 2**32, 6]),
    "shape 2**63 - 1, often": put(*T, "shape", [2**63 - 1] * 32),
    "33 dimensions": put(*T, "shape", [1] * 31 + [2, 3]),
    "nothing of much": put(*T, "shape", [0, 2**63]),
    "size beyond": put(*T, "size", 2**40),
    "offset beyond": put(*T, "offset", 2**40),
    "offset not aligned": put(*T, "offset", 129),
    "overlapping": put("shards", 0, "tensors", 1, "offset", 128),
    "tensors swapped": lambda said: said["shards"][0]["tensors"].reverse(),
    "one name twice": put("shards", 0, "tensors", 1, "name", "w0"),
    "a tensor less": lambda said: said["shards"][0]["tensors"].pop(),
    "file larger": put("shards", 0, "file_size", 2**62),
    "all larger, by one lie": lambda said: enlarge(said, 2**50),
}


def enlarge(said: dict[str, Any], n: int) -> None:
    """Let the last tensor be huge, with everything in the metadata consistent."""
    shard = said["shards"][0]
    tensor = shard["tensors"][-1]
    tensor["shape"], tensor["size"] = [n], 8 * n
    shard["file_size"] = tensor["offset"] + 8 * n


CONSISTENT = {"all larger, by one lie"}
"""Lies that only the shard gives away."""


@pytest.mark.slow
@pytest.mark.parametrize("what", LIES)
@pytest.mark.parametrize("level", ["valid", "complete"])
def test_metadata_that_lies(prefix: Path, what: str, level: str) -> None:
    lie(prefix, LIES[what])
    path = files.metadata_path(prefix)
    own = str(files.shard_path(prefix, 0)).encode()
    data = path.read_bytes()[: -files.TAIL].replace(b'"OWN"', b'"%b"' % own)
    data = data.replace(b'"BIG"', b"9" * 5000)
    path.write_bytes(files.sign(data + b'"}'))
    tracemalloc.start()
    try:
        shard = files.shard_path(prefix, 0)
        assert_refused(prefix, shard if what in CONSISTENT else path, level=level)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where every value of a JSON document is."""
    if path:
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from leaves(inner, (*path, key))


HOSTILE_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "../x",
    "/etc/passwd",
    "\0",
    "\ud800",
    "a" * 300,
    [],
    [[]],
    [-1],
    {},
    {"a": 1},
]


def loaded(prefix: Path) -> list[dict[str, np.ndarray]] | None:
    """Return all arrays; None where the code says which of its files is bad."""
    try:
        return MultiShardLoader(workers=1).load_all_shards(str(prefix))
    except CheckpointError as error:
        if not os.fspath(error.path).startswith(os.fspath(prefix)):
            raise AssertionError("another file is called bad") from error
        return None


FREE = {"step", "timestamp", "strategy", "precision", "name", "digest"}
"""Fields whose values say nothing about the bytes, or may be null."""


@pytest.mark.slow
def test_every_value_in_every_place(prefix: Path) -> None:
    """Each is refused, or what is loaded is what was saved."""
    said = files.metadata_of(prefix)
    path = files.metadata_path(prefix)
    arrays = MultiShardLoader().load_all_shards(str(prefix))
    expected = [[array.tobytes() for array in shard.values()] for shard in arrays]
    accepted = set()
    for where, value in itertools.product(list(leaves(said)), HOSTILE_VALUES):
        if where == ("checksum",):
            continue
        changed = copy.deepcopy(said)
        put(*where, value)(changed)
        if changed == said and not isinstance(value, bool | float):
            continue
        path.write_bytes(files.signed(changed))
        shards = loaded(prefix)
        if shards is not None:
            accepted.add(where[-1])
            assert [[a.tobytes() for a in shard.values()] for shard in shards] == expected, where
    assert accepted <= FREE
    assert {"step", "strategy", "precision", "name"} <= accepted


def sealed(body: bytes) -> bytes:
    return body + b'sha256:%b"}\n' % hashlib.sha256(body).hexdigest().encode()


class TestMetadataText:
    """JSON that is none, or more than it should be."""

    def refused(self, prefix: Path, data: bytes) -> str:
        files.metadata_path(prefix).write_bytes(data)
        return assert_refused(prefix, files.metadata_path(prefix))

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\0",
            b"{}",
            b"[]",
            b"null",
            b"\xff\xfe{\0}\0",
            b"\x80\x04N.",  # a pickle
            b"PK\3\4",
            b'{"schema_version": 1',
            b"[" * 10_000,
            b"[" * 10_000 + b"]" * 10_000,
            b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        ],
    )
    @pytest.mark.parametrize("is_signed", [False, True])
    def test_no_metadata(self, prefix: Path, data: bytes, is_signed: bool) -> None:
        self.refused(prefix, files.sign(data + b', "checksum": ""}') if is_signed else data)

    @pytest.mark.parametrize("name", ["step", "schema_version", "shards", "checksum"])
    def test_a_key_that_stands_twice(self, prefix: Path, name: str) -> None:
        said = files.metadata_of(prefix)
        text = files.signed(said)[: -files.TAIL] + b'"}'
        twice = b'{"%b": %b, ' % (name.encode(), json.dumps(said[name]).encode())
        self.refused(prefix, files.sign(twice + text[1:]))

    @pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"07", b"0x7"])
    def test_numbers_that_are_none(self, prefix: Path, number: bytes) -> None:
        text = files.signed(files.metadata_of(prefix))[: -files.TAIL] + b'"}'
        assert b'"step": 7' in text
        self.refused(prefix, files.sign(text.replace(b'"step": 7', b'"step": ' + number)))

    def test_digits_without_end(self, prefix: Path) -> None:
        """As many as Python prints, so that one more is too many."""
        text = files.signed(files.metadata_of(prefix))[: -files.TAIL] + b'"}'
        for n_digits in (4299, 4300, 4301, 100_000):
            for field in (b'"file_size": ', b'"offset": ', b'"size": ', b'"world_size": '):
                number = re.search(field + rb"(\d+)", text)
                assert number
                changed = text[: number.start(1)] + b"9" * n_digits + text[number.end(1) :]
                self.refused(prefix, files.sign(changed))

    def test_the_checksum_is_of_another_field(self, prefix: Path) -> None:
        """It stands at the end, and what is named checksum says something else."""
        said = files.metadata_of(prefix)
        del said["timestamp"]
        said["checksum"] = f"sha256:{'0' * 64}"
        text = json.dumps({**said, "timestamp": ""}).encode()
        self.refused(prefix, sealed(text.removesuffix(b'"}')))

    def test_the_checksum_has_more_before_it(self, prefix: Path) -> None:
        body = files.metadata_path(prefix).read_bytes()[: -files.TAIL] + b"and "
        self.refused(prefix, sealed(body))

    def test_more_than_64_mib(self, prefix: Path) -> None:
        """It is not even read."""
        path = files.metadata_path(prefix)
        os.truncate(path, 64 * MIB + 1)
        tracemalloc.start()
        try:
            assert_refused(prefix, path)
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        finally:
            tracemalloc.stop()


class TestHeaders:
    """Shards whose first bytes lie, beside metadata that doesn't."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("at", "field"),
        [
            (0, b"\0\0\0\0"),
            (0, b"SHAR"),
            (0, b"\x80\x04N."),
            (4, b"\1\0\0\0"),
            (4, b"\xff\xff\xff\xff"),
            (8, b"\xff\xff\xff\xff"),
            (8, b"\xff\xff\xff\x7f"),
            (8, b"\0\0\0\x80"),
            (8, b"\0\0\0\0"),
            (8, b"\x41\0\0\0"),
            (12, b"\xff\xfe"),
            (12, b"\0" * 64),
            (76, b"\xff\xff\xff\xff"),
            (76, b"\xff\xff\xff\x7f"),
            (76, b"\3\0\0\0"),
            (80, b"\xff" * 8),
            (80, b"\xff" * 7 + b"\x7f"),
            (80, b"\0" * 7 + b"\x80"),
            (80, b"\0" * 8),
        ],
    )
    @pytest.mark.parametrize("level", ["valid", "complete"])
    def test_a_field_that_lies(self, prefix: Path, at: int, field: bytes, level: str) -> None:
        path = files.shard_path(prefix, 0)
        data = bytearray(path.read_bytes())
        data[at : at + len(field)] = field
        path.write_bytes(data)
        tracemalloc.start()
        try:
            assert_refused(prefix, path, level=level)
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        finally:
            tracemalloc.stop()

    def test_a_shard_that_holds_a_pickle(self, prefix: Path) -> None:
        """Whatever the bytes are, they are only bytes."""
        bomb = pickle.dumps(os.getcwd)
        bomb = bomb + bytes(-len(bomb) % 8)
        saver = MultiShardSaver(sync=False)
        for rank in range(2):
            array = np.frombuffer(bomb, np.uint8)
            saver.save_shard(str(prefix), rank, {"a": array}, overwrite=True)
        saver.save_metadata(str(prefix), world_size=2)
        with watched() as seen:
            (first, _) = MultiShardLoader().load_all_shards(str(prefix))
        assert first["a"].tobytes() == bomb
        assert_inside(prefix.parent, seen)


class TestFiles:
    """What stands where a file should be."""

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
        arrays = {"w": np.arange(6.0)}
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
                MultiShardSaver(sync=False).save_shard(str(prefix), rank, arrays, overwrite=True)
            path = files.record_path(prefix, 0)
            said = json.loads(path.read_bytes())
            before = copy.deepcopy(said)
            change(said)
            path.write_bytes(files.signed(said))
            if said == before:
                path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
            with watched() as seen, pytest.raises(CheckpointError) as caught:
                MultiShardSaver(sync=False).save_metadata(str(prefix), world_size=2)
            named = path, files.shard_path(prefix, 0)
            assert any(f"'{name}'" in str(caught.value) for name in named)
            assert_inside(prefix.parent, seen)
            assert not files.metadata_path(prefix).exists()


@given(data=st.data())
def test_any_bytes_instead_of_some(template: Path, tmp_path_factory, data) -> None:
    """A checkpoint error or what was saved, and never anything else."""
    path = tmp_path_factory.mktemp("any") / "ckpt"
    shutil.copytree(template, path)
    prefix = path / "x"
    target = data.draw(
        st.sampled_from(
            [files.metadata_path(prefix), *(files.shard_path(prefix, n) for n in (0, 1))]
        )
    )
    old = target.read_bytes()
    begin = data.draw(st.integers(0, len(old)))
    end = data.draw(st.integers(begin, len(old)))
    new = old[:begin] + data.draw(st.binary(max_size=100)) + old[end:]
    if "metadata" in target.name and len(new) > files.TAIL and data.draw(st.booleans()):
        new = files.sign(new[: -files.TAIL] + b', "checksum": ""}')
    target.write_bytes(new)
    arrays = loaded(prefix)
    if arrays is not None:
        assert [arrays[n][f"b{n}"].tolist() for n in (0, 1)] == [[0, 1, 2, 3, 4]] * 2
    shutil.rmtree(path.parent)

"""What it costs to save and to load a checkpoint, beside bare reads and writes and other formats.

::

    python benchmarks/checkpoint.py [--mib MIB] [--rounds N] [--only SECTION ...] [--dir DIR]
                                    [--json FILE] [--markdown FILE]

Every contender runs in a process of its own and times itself; within a section they take turns
(A B C A B C ...), after one round that is not counted. All save the same arrays, which are mapped
from one file, and each loads the files of its own format, which are in the page cache and came
there in the same way. What comes of it is compared with what was saved, outside the clock. Before
each run, as much memory as it will fill is touched and freed: virtual machines fetch memory back
from their host when it is touched, which is slow, and hits whoever comes first.
"""

import argparse
import contextlib
import gc
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from _figures import Figure, Ruler, Section, figures, ratio_of
from _races import Command, child, play_or, warm_race
from _report import parser, report

MIB = 2**20
N_SHARDS, N_ARRAYS = 4, 64
PIECE_BYTES = MIB
DIGEST_MIB = 64
N_RANKS = (1000, 4000)
SECTIONS = ("load", "load-out", "save", "save-fsync", "valid", "digests", "ranks")

Array = np.ndarray[Any, np.dtype[np.float32]]
Arrays = Mapping[str, Array]
Load = Callable[[], Iterable[Arrays]]
"""Loads a whole checkpoint, and is timed."""
Save = Callable[[Path, Sequence[Arrays]], object]
"""Saves the arrays of all shards in a directory, and is timed."""


# What is saved.


def make_data(path: Path, n_bytes: int) -> Path:
    """Write random bytes that are no NaN, so that they can be compared."""
    luck = np.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(N_ARRAYS):
            luck.random(n_bytes // N_ARRAYS // 4, np.float32).tofile(file)
    return path


def shards_of(data: Path) -> list[dict[str, Array]]:
    """Map the arrays, in the shards in which they are saved."""
    flat: Array = np.memmap(data, np.float32, "r+")
    rows = flat.view(np.ndarray).reshape(N_ARRAYS, -1)
    per_shard = N_ARRAYS // N_SHARDS
    return [
        {f"layers.{i}.weight": row for i, row in enumerate(rows) if i // per_shard == number}
        for number in range(N_SHARDS)
    ]


# Loading.


def fill(path: Path, buffer: memoryview) -> None:
    """Read a file with as few calls as there can be."""
    with open(path, "rb", buffering=0) as file:
        done = 0
        while done < len(buffer):
            n = file.readinto(buffer[done:])
            if not n:
                raise SystemExit(f"'{path}' is too short")
            done += n


def raw_load(place: Path, n_threads: str, memory: str = "fresh") -> Load:
    """Whole files, and views of them as arrays."""
    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415 - to know where they lie

    metadata = MultiShardLoader().load_metadata(str(place / "ours" / "x"))
    kept = [np.ones(shard.file_size, np.uint8) for shard in metadata.shards if memory == "used"]

    def load(number: int) -> dict[str, Array]:
        shard = metadata.shards[number]
        buffer = kept[number] if kept else np.empty(shard.file_size, np.uint8)
        fill(place / "ours" / shard.file, buffer.data)
        return {
            tensor.name: buffer[tensor.offset : tensor.offset + tensor.size].view(np.float32)
            for tensor in shard.tensors
        }

    executor = ThreadPoolExecutor(int(n_threads))
    return lambda: list(executor.map(load, range(N_SHARDS)))


def ours_load(place: Path, n_threads: str, digest: str, memory: str = "fresh") -> Load:
    """All shards; proven by their checksum, or not at all; into memory in use or fresh."""
    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415

    level: Literal["complete", "valid"] = "complete" if digest == "none" else "valid"
    loader = MultiShardLoader(level=level, workers=int(n_threads))
    directory = {"none": "ours", "sha256": "ours"}.get(digest, f"ours-{digest}")
    prefix = str(place / directory / "x")
    if memory == "fresh":
        return lambda: loader.load_all_shards(prefix)
    shards = loader.load_metadata(prefix).shards
    out = [{t.name: np.ones(t.shape, np.float32) for t in shard.tensors} for shard in shards]
    return lambda: loader.load_all_shards(prefix, out=out)


def ours_tensors(place: Path, n_threads: str, how: str) -> Load:
    """By their names, proven by the digests of tensors; into memory in use or fresh, or mapped."""
    from shardproof.checkpoint import MultiShardLoader  # noqa: PLC0415

    loader = MultiShardLoader(workers=int(n_threads))
    prefix = str(place / "ours" / "x")
    entries = [t for shard in loader.load_metadata(prefix).shards for t in shard.tensors]
    out = {t.name: np.ones(t.shape, np.float32) for t in entries if how == "out"}
    return lambda: [loader.load_tensors(prefix, out=out, mapped=how == "mapped")]


def each_file(
    directory: Path, n_threads: str, load: Callable[[Path], Arrays]
) -> Callable[[], list[Arrays]]:
    """Load all files of a directory, in as many threads as we have beside them."""
    paths = sorted(directory.iterdir())
    executor = ThreadPoolExecutor(int(n_threads))
    return lambda: list(executor.map(load, paths))


def numpy_load(place: Path, n_threads: str) -> Load:
    return each_file(place / "numpy", n_threads, lambda path: {path.stem: np.load(path)})


def safetensors_load(place: Path, n_threads: str) -> Load:
    load_file = importlib.import_module("safetensors.numpy").load_file
    return each_file(place / "safetensors", n_threads, load_file)


def torch_load(place: Path, n_threads: str) -> Load:
    torch = importlib.import_module("torch")

    def load(path: Path) -> Arrays:
        return as_numpy(torch.load(path, weights_only=True))

    return each_file(place / "torch", n_threads, load)


def dcp_load(place: Path) -> Load:
    """Into fresh tensors: it wants to be given some."""
    torch = importlib.import_module("torch")
    dcp = importlib.import_module("torch.distributed.checkpoint")
    n_values = (place / "data").stat().st_size // N_ARRAYS // 4

    def load() -> list[Arrays]:
        tensors = {f"layers.{i}.weight": torch.empty(n_values) for i in range(N_ARRAYS)}
        dcp.load(tensors, checkpoint_id=place / "dcp")
        return [as_numpy(tensors)]

    return load


def as_numpy(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


LOADS: dict[str, Callable[..., Load]] = {
    "raw": raw_load,
    "ours": ours_load,
    "tensors": ours_tensors,
    "numpy": numpy_load,
    "safetensors": safetensors_load,
    "torch": torch_load,
    "dcp": dcp_load,
}


# Saving. Who doesn't sync by itself gets it done here, where it is asked for.


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def in_threads(n_threads: int, save: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(n_threads) as executor:
        list(executor.map(save, range(N_SHARDS)))


def raw_save(n_threads: str, fsync: bool) -> Save:
    """One file for each shard, the bytes of its arrays one after the other."""

    def save(place: Path, shards: Sequence[Arrays]) -> None:
        def save_one(number: int) -> None:
            with open(place / f"{number}.raw", "wb", buffering=0) as file:
                for array in shards[number].values():
                    write_all(file.fileno(), array.view(np.uint8).data)
                if fsync:
                    os.fsync(file.fileno())

        in_threads(int(n_threads), save_one)
        if fsync:
            sync(place)

    return save


def write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def ours_save(digest: str, n_threads: str, fsync: bool) -> Save:
    from shardproof.checkpoint import MultiShardSaver  # noqa: PLC0415

    saver = MultiShardSaver(algorithm=digest, sync=fsync)  # type: ignore[arg-type] # from the command line

    def save(place: Path, shards: Sequence[Arrays]) -> None:
        prefix = str(place / "x")
        in_threads(int(n_threads), lambda rank: saver.save_shard(prefix, rank, shards[rank]))
        saver.save_metadata(prefix, world_size=N_SHARDS)

    return save


def each_shard(n_threads: str, fsync: bool, save_one: Callable[[Path, int, Arrays], None]) -> Save:
    """Save all shards in as many threads as we have beside them; each thread syncs its files."""

    def save(place: Path, shards: Sequence[Arrays]) -> None:
        in_threads(int(n_threads), lambda number: save_one(place, number, shards[number]))
        if fsync:
            sync(place)

    return save


def numpy_save(n_threads: str, fsync: bool) -> Save:
    def save_one(place: Path, _: int, arrays: Arrays) -> None:
        for name, array in arrays.items():
            np.save(place / name, array)
            if fsync:
                sync(place / f"{name}.npy")

    return each_shard(n_threads, fsync, save_one)


def safetensors_save(n_threads: str, fsync: bool) -> Save:
    save_file = importlib.import_module("safetensors.numpy").save_file

    def save_one(place: Path, number: int, arrays: Arrays) -> None:
        path = place / f"{number}.safetensors"
        save_file(dict(arrays), path)
        if fsync:
            sync(path)

    return each_shard(n_threads, fsync, save_one)


def torch_save(n_threads: str, fsync: bool) -> Save:
    torch = importlib.import_module("torch")

    def save_one(place: Path, number: int, arrays: Arrays) -> None:
        path = place / f"{number}.pt"
        torch.save(as_torch(arrays), path)
        if fsync:
            sync(path)

    return each_shard(n_threads, fsync, save_one)


def dcp_save(fsync: bool) -> Save:
    dcp = importlib.import_module("torch.distributed.checkpoint")

    def save(place: Path, shards: Sequence[Arrays]) -> None:
        tensors = {name: t for arrays in shards for name, t in as_torch(arrays).items()}
        writer = dcp.FileSystemWriter(place, sync_files=fsync, thread_count=2)
        dcp.save(tensors, storage_writer=writer)
        if fsync:
            sync(place)

    return save


def as_torch(arrays: Arrays) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


SAVES: dict[str, Callable[..., Save]] = {
    "raw": raw_save,
    "ours": ours_save,
    "numpy": numpy_save,
    "safetensors": safetensors_save,
    "torch": torch_save,
    "dcp": dcp_save,
}


# Digests, over memory that is warm.


def hashlib_digest(data: memoryview, n_threads: str = "1") -> Callable[[], object]:
    """Each thread hashes its part, as a file of its own."""
    executor, size = ThreadPoolExecutor(int(n_threads)), len(data) // int(n_threads)

    def hash_part(start: int) -> None:
        digest = hashlib.sha256()
        for at in range(start, start + size, PIECE_BYTES):
            digest.update(data[at : at + PIECE_BYTES])

    return lambda: list(executor.map(hash_part, range(0, len(data), size)))


def xxh3_digest(data: memoryview) -> Callable[[], object]:
    xxhash = importlib.import_module("xxhash")

    def run() -> None:
        digest = xxhash.xxh3_128()
        for at in range(0, len(data), PIECE_BYTES):
            digest.update(data[at : at + PIECE_BYTES])

    return run


def blake3_digest(data: memoryview, n_threads: str) -> Callable[[], object]:
    blake3 = importlib.import_module("blake3").blake3

    def run() -> None:
        blake3(data, max_threads=int(n_threads)).digest()

    return run


def tree_digest(data: memoryview) -> Callable[[], object]:
    from shardproof._base.digest import TreeDigest  # noqa: PLC0415

    def run() -> None:
        digest = TreeDigest()
        for at in range(0, len(data), 16 * MIB):
            digest.update(data[at : at + 16 * MIB])
        digest.hexdigest()

    return run


DIGESTS: dict[str, Callable[..., Callable[[], object]]] = {
    "sha256": hashlib_digest,
    "sha256-tree": tree_digest,
    "blake3": blake3_digest,
    "xxh3": xxh3_digest,
}


# Children: each says "ready", then runs once for each line, and prints GB a second.


def play(section: str, place: str, contender: str, *arguments: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # others print what they like: it goes to standard error
    runs: dict[str, Callable[..., Callable[[], float]]]
    runs = {"load": load_run, "digests": digest_run, "valid": valid_run, "ranks": ranks_run}
    run = runs.get(section, save_run)
    rate = run(Path(place), contender, *arguments)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        print(rate(), file=answers, flush=True)


def load_run(place: Path, contender: str, *arguments: str) -> Callable[[], float]:
    load = LOADS[contender](place, *arguments)
    expected = {name: a for arrays in shards_of(place / "data") for name, a in arrays.items()}
    n_bytes = sum(array.nbytes for array in expected.values())

    def rate() -> float:
        touch_and_free(n_bytes)
        begin = time.perf_counter()
        loaded = load()
        seconds = time.perf_counter() - begin
        require_same({name: a for arrays in loaded for name, a in arrays.items()}, expected)
        return n_bytes / seconds / 1e9

    return rate


def require_same(loaded: Arrays, expected: Arrays) -> None:
    """End here unless all is there, by its ends: the checksums were proven elsewhere."""
    for name, array in expected.items():
        found = loaded[name].reshape(-1)
        if found.shape != array.shape or any(found[at] != array[at] for at in (0, -1)):
            raise SystemExit(f"{name} is not what was saved")


def save_run(place: Path, contender: str, *arguments: str) -> Callable[[], float]:
    *options, fsync = arguments
    save = SAVES[contender](*options, fsync=fsync == "fsync")
    shards = shards_of(place / "data")
    n_bytes = sum(array.nbytes for arrays in shards for array in arrays.values())
    target = place / "saved"

    def rate() -> float:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(target)
        target.mkdir()
        settle(target, n_bytes)
        begin = time.perf_counter()
        save(target, shards)
        seconds = time.perf_counter() - begin
        n_written = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        shutil.rmtree(target)
        if n_written < n_bytes:
            raise SystemExit(f"{contender}: expected {n_bytes} bytes, found {n_written}")
        return n_bytes / seconds / 1e9

    return rate


def valid_run(place: Path, contender: str, directory: str) -> Callable[[], float]:
    paths = sorted((place / directory).glob("*.shard"))
    n_bytes = sum(path.stat().st_size for path in paths)

    def run() -> None:
        if contender == "ours":
            from shardproof import validate  # noqa: PLC0415

            assert validate(place / directory, level="valid").ok
        elif contender == "b3sum":
            argv = ["b3sum", "--num-threads", "2", *map(str, paths)]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        else:
            argv = ["openssl", "dgst", "-sha256"]
            others = subprocess.Popen([*argv, *paths[1::2]], stdout=subprocess.DEVNULL)
            subprocess.run([*argv, *map(str, paths[::2])], check=True, stdout=subprocess.DEVNULL)
            assert not others.wait()

    def rate() -> float:
        begin = time.perf_counter()
        run()
        return n_bytes / (time.perf_counter() - begin) / 1e9

    return rate


def ranks_run(place: Path, contender: str, n: str) -> Callable[[], float]:
    from shardproof.checkpoint import MultiShardSaver  # noqa: PLC0415

    target, arrays = place / f"ranks-{contender}-{n}", {"w": np.zeros(4)}

    def save_raw(rank: int) -> None:
        for name in (f"x_{rank}.shard", f"x_{rank}.json"):
            with open(target / f".{name}", "xb", buffering=0) as file:
                file.write(bytes(400))
            os.rename(target / f".{name}", target / name)

    def rate() -> float:
        target.mkdir()
        saver = MultiShardSaver(sync=False)
        begin = time.perf_counter()
        for rank in range(int(n)):
            if contender == "raw":
                save_raw(rank)
            else:
                saver.save_shard(target / "x", rank, arrays)
        seconds = time.perf_counter() - begin
        shutil.rmtree(target)
        return seconds / int(n) * 1e6

    return rate


def digest_run(_: Path, contender: str, *arguments: str) -> Callable[[], float]:
    data = np.random.default_rng(0).integers(0, 256, DIGEST_MIB * MIB, np.uint8).data
    run = DIGESTS[contender](data, *arguments)

    def rate() -> float:
        run()
        begin = time.perf_counter()
        run()
        return len(data) / (time.perf_counter() - begin) / 1e9

    return rate


def touch_and_free(n_bytes: int) -> None:
    gc.collect()
    np.ones(n_bytes, np.uint8)


def settle(directory: Path, n_bytes: int) -> None:
    """Let nothing of earlier runs be under way to the disk, and memory for the files be at hand."""
    scratch, block = directory / "scratch", bytes(MIB)
    with open(scratch, "wb", buffering=0) as file:
        file.writelines(block for _ in range(n_bytes * 5 // 4 // MIB))
    os.sync()
    os.unlink(scratch)  # last, or the host has its memory back before it is used


# The sections.


PEERS = {
    "safetensors": ("safetensors", "safetensors"),
    "torch": ("`torch.save`, `torch.load`", "torch"),
    "dcp": ("torch's distributed checkpoint", "torch"),
}
"""Contenders that are left out where a module is not installed: what they are, and which."""

UNIT = "GB/s"
HASH = "SHA-256 alone, 1 thread"
HASH_2 = "SHA-256 alone, 2 threads"
B3SUM, OURS_B3 = "`b3sum`, 2 threads, 8 files", "`validate`, BLAKE3, 8 files"


def installed(name: str) -> bool:
    return name not in PEERS or importlib.util.find_spec(PEERS[name][1]) is not None


def left_out() -> str:
    """Name who isn't there."""
    missing = [
        f"{what}: not measured: {module} is not installed."
        for name, (what, module) in PEERS.items()
        if not installed(name)
    ]
    if not has_blake3():
        missing.append("BLAKE3: not measured: blake3 is not installed.")
    return " ".join(missing)


def has_blake3() -> bool:
    return importlib.util.find_spec("blake3") is not None


def raced(commands: Sequence[Command], rounds: int) -> list[Figure]:
    return figures(commands, warm_race(commands, rounds), 1.0)


LOADED = {
    "bare reads, 1 thread": ("raw", "1"),
    "bare reads, 2 threads": ("raw", "2"),
    "bare reads, 2 threads, memory in use": ("raw", "2", "used"),
    "ours, not proven, 1 thread": ("ours", "1", "none"),
    "ours, not proven, 2 threads": ("ours", "2", "none"),
    "ours, SHA-256, 1 thread": ("ours", "1", "sha256"),
    "ours, SHA-256, 2 threads": ("ours", "2", "sha256"),
    "ours, SHA-256 tree, 2 threads": ("ours", "2", "sha256-tree"),
    "ours, BLAKE3, 1 thread": ("ours", "1", "blake3"),
    "ours, BLAKE3, 2 threads": ("ours", "2", "blake3"),
    "ours, `load_tensors`, XXH3": ("tensors", "2", "fresh"),
    "ours, `load_tensors(out=...)`, XXH3, memory in use": ("tensors", "2", "out"),
    "ours, `load_tensors(mapped=True)`, XXH3, not copied": ("tensors", "2", "mapped"),
    "`np.load`, 1 thread": ("numpy", "1"),
    "`np.load`, 2 threads": ("numpy", "2"),
    "`safetensors.numpy.load_file`, 1 thread": ("safetensors", "1"),
    "`safetensors.numpy.load_file`, 2 threads": ("safetensors", "2"),
    "`torch.load`, 1 thread": ("torch", "1"),
    "`torch.load`, 2 threads": ("torch", "2"),
    "torch's distributed checkpoint": ("dcp",),
}
LOADED_IN_PLACE = {
    "bare reads, 2 threads, memory in use": ("raw", "2", "used"),
    "ours, not proven, 2 threads": ("ours", "2", "none", "used"),
    "ours, SHA-256, 1 thread": ("ours", "1", "sha256", "used"),
    "ours, SHA-256, 2 threads": ("ours", "2", "sha256", "used"),
    "ours, SHA-256, 2 threads, fresh memory": ("ours", "2", "sha256"),
    "ours, BLAKE3, 2 threads": ("ours", "2", "blake3", "used"),
    "ours, BLAKE3, 2 threads, fresh memory": ("ours", "2", "blake3"),
}
SAVED = {
    "bare writes, 1 thread": ("raw", "1"),
    "bare writes, 2 threads": ("raw", "2"),
    "ours, SHA-256, 1 thread": ("ours", "sha256", "1"),
    "ours, SHA-256, 2 threads": ("ours", "sha256", "2"),
    "ours, SHA-256 tree, 1 thread": ("ours", "sha256-tree", "1"),
    "ours, SHA-256 tree, 2 threads": ("ours", "sha256-tree", "2"),
    "ours, BLAKE3, 1 thread": ("ours", "blake3", "1"),
    "ours, BLAKE3, 2 threads": ("ours", "blake3", "2"),
    "`np.save`, 1 thread": ("numpy", "1"),
    "`np.save`, 2 threads": ("numpy", "2"),
    "`safetensors.numpy.save_file`, 1 thread": ("safetensors", "1"),
    "`safetensors.numpy.save_file`, 2 threads": ("safetensors", "2"),
    "`torch.save`, 1 thread": ("torch", "1"),
    "`torch.save`, 2 threads": ("torch", "2"),
    "torch's distributed checkpoint, 2 threads": ("dcp",),
}
HASHED = {
    "SHA-256, 1 thread": ("sha256",),
    "SHA-256, 2 threads": ("sha256", "2"),
    "SHA-256 tree, all threads": ("sha256-tree",),
    "BLAKE3, 1 thread": ("blake3", "1"),
    "BLAKE3, 2 threads": ("blake3", "2"),
    "XXH3-128, 1 thread": ("xxh3",),
}


PROVEN = (("blake3", 8), ("blake3", 1), ("sha256", 8))
VALID = {
    B3SUM: ("b3sum", "valid-blake3-8"),
    OURS_B3: ("ours", "valid-blake3-8"),
    "`b3sum`, 2 threads, 1 file": ("b3sum", "valid-blake3-1"),
    "`validate`, BLAKE3, 1 file": ("ours", "valid-blake3-1"),
    "`openssl dgst -sha256`, 2 at once, 8 files": ("openssl", "valid-sha256-8"),
    "`validate`, SHA-256, 8 files": ("ours", "valid-sha256-8"),
}


def present(contenders: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield those that can run here."""
    for what, arguments in contenders.items():
        if installed(arguments[0]) and ("blake3" not in arguments or has_blake3()):
            yield what, arguments


def load(options: argparse.Namespace, place: Path) -> Section:
    """All arrays of a checkpoint, in memory."""
    make_files(place)
    commands = [child(what, "load", place, *rest) for what, rest in present(LOADED)]
    commands.append(child(HASH, "digests", place, "sha256"))
    note = (
        f"{described(options)}, all files in the page cache; {options.rounds} rounds. Memory is "
        "fresh, unless the name says that it was in use. "
    )
    section = Section("Loading", note + left_out(), UNIT, raced(commands, options.rounds))
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        aim(found, "ours, not proven, 1 thread", "bare reads, 1 thread", 0.9),
        aim(found, "ours, not proven, 2 threads", "bare reads, 2 threads", 0.9),
        aim(found, "ours, not proven, 1 thread", "`safetensors.numpy.load_file`, 1 thread", 1),
        aim(found, "ours, not proven, 2 threads", "`safetensors.numpy.load_file`, 2 threads", 1),
        Ruler(
            "ours, SHA-256, 2 threads over twice SHA-256 alone",
            0.8,
            half(ratio_of(found, "ours, SHA-256, 2 threads", HASH)),
            at_least=True,
        ),
        aim(found, "ours, BLAKE3, 2 threads", "ours, not proven, 2 threads", 0.6),
    ]
    return section


def load_out(options: argparse.Namespace, place: Path) -> Section:
    """All arrays of a checkpoint, in memory that is there."""
    make_files(place)
    commands = [child(what, "load", place, *rest) for what, rest in present(LOADED_IN_PLACE)]
    commands.append(child(HASH_2, "digests", place, "sha256", "2"))
    note = (
        f"{described(options)}, all files in the page cache; {options.rounds} rounds. Into arrays "
        "that are in use, `load_all_shards(out=...)`, unless the name says that memory is fresh. "
    )
    title = "Loading into existing memory"
    section = Section(title, note + left_out(), UNIT, raced(commands, options.rounds))
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        aim(found, "ours, SHA-256, 2 threads", HASH_2, 0.8),
        aim(found, "ours, not proven, 2 threads", "bare reads, 2 threads, memory in use", 0.9),
    ]
    return section


def half(ratio: float | None) -> float | None:
    return None if ratio is None else ratio / 2


def aim(found: Mapping[str, Figure], what: str, beside: str, limit: float) -> Ruler:
    return Ruler(f"{what} over {beside}", limit, ratio_of(found, what, beside), at_least=True)


def described(options: argparse.Namespace) -> str:
    return f"{options.mib} MiB of float32 in {N_ARRAYS} arrays, {N_SHARDS} shards"


def make_files(place: Path) -> None:
    """Save in every format, and bring all files into the page cache in the same way."""
    if (place / "ours").is_dir():  # of another section
        return
    shards = shards_of(place / "data")
    for directory, save in savers():
        path = place / directory
        path.mkdir()
        save(path, shards)
    for path in place.rglob("*"):
        if path.is_file():
            read_anew(path)


def savers() -> Iterator[tuple[str, Save]]:
    yield "ours", ours_save("sha256", "1", fsync=True)
    yield "ours-sha256-tree", ours_save("sha256-tree", "1", fsync=True)
    if has_blake3():
        yield "ours-blake3", ours_save("blake3", "1", fsync=True)
    for name in ("numpy", "safetensors", "torch", "dcp"):
        if installed(name):
            yield name, SAVES[name](*["1"] * (name != "dcp"), fsync=True)


def read_anew(path: Path) -> None:
    """Drop what the page cache holds of a file, and read it in pieces of one size."""
    with open(path, "rb", buffering=0) as file:
        if sys.platform == "linux":
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(MIB):
            pass


def save(options: argparse.Namespace, place: Path) -> Section:
    """All arrays of a checkpoint, in files that the system has not yet brought to the disk."""
    section = saving(options, place, "without")
    section.title = "Saving, without fsync"
    found = {figure.what: figure for figure in section.figures}
    what = "ours, SHA-256, 2 threads"
    limits = [ratio_of(found, what, "bare writes, 2 threads"), half(ratio_of(found, what, HASH))]
    section.rulers = [
        Ruler(
            f"{what} over the lesser of bare writes, 2 threads, and twice SHA-256 alone",
            0.8,
            max((limit for limit in limits if limit is not None), default=None),
            at_least=True,
        ),
        aim(found, what, "ours, SHA-256, 1 thread", 1.6),
    ]
    return section


def save_fsync(options: argparse.Namespace, place: Path) -> Section:
    """All arrays of a checkpoint, on the disk."""
    section = saving(options, place, "fsync")
    section.title = "Saving, with fsync of files and directory"
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        aim(found, f"ours, SHA-256, {n}", f"`safetensors.numpy.save_file`, {n}", 1)
        for n in ("1 thread", "2 threads")
    ]
    return section


def saving(options: argparse.Namespace, place: Path, fsync: str) -> Section:
    commands = [child(what, "save", place, *rest, fsync) for what, rest in present(SAVED)]
    commands.append(child(HASH, "digests", place, "sha256"))
    note = (
        f"{described(options)}, to files that are new; {options.rounds} rounds. Threads save "
        "shards at once. "
    )
    return Section("", note + left_out(), UNIT, raced(commands, options.rounds))


def valid(options: argparse.Namespace, place: Path) -> Section:
    """Every byte of files that are in the page cache."""
    shards = shards_of(place / "data")
    half_of_all = {
        name: array for arrays in shards[: N_SHARDS // 2] for name, array in arrays.items()
    }
    for digest, n_files in PROVEN:
        directory = place / f"valid-{digest}-{n_files}"
        save_as_valid(directory / "x", [half_of_all] * n_files, digest)
    for path in place.glob("valid-*/*.shard"):
        read_anew(path)
    commands = [child(what, "valid", place, *rest) for what, rest in VALID.items()]
    note = (
        f"Files of {options.mib // 2} MiB in the page cache; {options.rounds} rounds. `validate` "
        "is at level valid, and hashes as many files at once as there are processors."
    )
    section = Section("Verifying every byte", note, UNIT, raced(commands, options.rounds))
    found = {figure.what: figure for figure in section.figures}
    section.rulers = [
        aim(found, OURS_B3, B3SUM, 0.9),
        aim(
            found, "`validate`, SHA-256, 8 files", "`openssl dgst -sha256`, 2 at once, 8 files", 0.9
        ),
    ]
    return section


def save_as_valid(prefix: Path, shards: Sequence[Arrays], digest: str) -> None:
    from shardproof.checkpoint import MultiShardSaver  # noqa: PLC0415

    saver = MultiShardSaver(algorithm=digest, sync=False)  # type: ignore[arg-type] # a text
    for rank, arrays in enumerate(shards):
        saver.save_shard(prefix, rank, arrays)
    saver.save_metadata(prefix, world_size=len(shards))


def ranks(options: argparse.Namespace, place: Path) -> Section:
    """All ranks of a checkpoint, one after the other, each with a tensor of 32 bytes."""
    commands = [
        child(f"{what}, {n} ranks", "ranks", place, how, n)
        for what, how in (("two bare files a rank", "raw"), ("`save_shard`", "ours"))
        for n in N_RANKS
    ]
    note = (
        f"Microseconds a rank; {options.rounds} rounds. Without fsync. A rank writes two files, "
        "the shard and its record, and so do the bare calls: open, write, rename."
    )
    section = Section("Many ranks", note, "us", raced(commands, options.rounds))
    found = {figure.what: figure for figure in section.figures}
    few, many = (f"`save_shard`, {n} ranks" for n in N_RANKS)
    ratio = ratio_of(found, many, few)
    section.rulers = [Ruler(f"{many} over {few}, each rank", 1.3, ratio)]
    return section


def digests(options: argparse.Namespace, place: Path) -> Section:
    """How fast what proves files is by itself."""
    commands = [child(what, "digests", place, *rest) for what, rest in present(HASHED)]
    note = f"{DIGEST_MIB} MiB of warm memory; {options.rounds} rounds."
    return Section("Digests alone", note, UNIT, raced(commands, options.rounds))


MEASURES: dict[str, Callable[[argparse.Namespace, Path], Section]] = {
    "load": load,
    "load-out": load_out,
    "valid": valid,
    "ranks": ranks,
    "save": save,
    "save-fsync": save_fsync,
    "digests": digests,
}


def versions() -> str:
    names = ["blake3", "xxhash", "safetensors", "torch"]
    return "".join(
        f", {name} {importlib.metadata.version(name)}"
        for name in names
        if importlib.util.find_spec(name)
    )


def parse_arguments() -> argparse.Namespace:
    found = parser(__doc__, SECTIONS)
    found.add_argument("--mib", type=int, default=1024, help="size of the checkpoint")
    found.add_argument("--rounds", type=int, default=5)
    return found.parse_args()


def measured(options: argparse.Namespace, place: Path) -> Iterator[Section]:
    make_data(place / "data", options.mib * MIB)
    for section in options.only:
        yield MEASURES[section](options, place)


def main() -> None:
    report(parse_arguments(), measured, versions())


if __name__ == "__main__":
    play_or(main, play)

"""Give odd trees to every command, and print how it forgot its manners.

::

    python -X dev -m tests.cli.manners PLACE FIRST EVERY

Never a traceback, never a file that is left open, and never a wait without end. Of the trees each
EVERY-th is made and tried, from the FIRST on.
"""

import gc
import itertools
import os
import shutil
import signal
import socket
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner

from shardproof import formats
from shardproof.cli import app
from shardproof.formats import _registry
from shardproof.testing import Layout, without_root_override, write_layout

PATIENCE = 20


def bind(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path.name[:99])
    finally:
        os.chdir(here)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


def lock(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0)


def folder(path: Path, mode: int = 0o755) -> None:
    path.mkdir()
    (path / "x.bin").write_bytes(b"x")
    path.chmod(mode)


ODD: dict[str, Callable[[Path], object]] = {
    "link to a folder outside": lambda path: path.symlink_to("../outside"),
    "link to a folder": lambda path: (path.with_name("f").mkdir(), path.symlink_to("f")),
    "link to the directory itself": lambda path: path.symlink_to("."),
    "link to its parent": lambda path: path.symlink_to(".."),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("gone"),
    "link to a file outside": lambda path: path.symlink_to("../outside/x.bin"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a FIFO": lambda path: path.symlink_to("../outside/fifo"),
    "FIFO": os.mkfifo,
    "socket": bind,
    "device": make_device,
    "unreadable": lock,
    "folder": folder,
    "unreadable folder": lambda path: folder(path, 0),
    "folder to be listed only": lambda path: folder(path, 0o444),
    "folder to be entered only": lambda path: folder(path, 0o111),
    "empty file": lambda path: path.touch(),
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage"),
}

_MARKS = {mark for entry in _registry.OURS.values() for mark in entry.marks if "/" not in mark}
NAMES = [
    *sorted(_MARKS),
    *("SHA256SUMS", "x.dvc", "x.metadata.json", "x.safetensors.index.json", "metadata.json"),
    *("acts000001.bin", "a.parquet", "a.npy", "a.tar", "a.safetensors", "a.tfrecord", "a.idx"),
    *("__0_0.distcp", "a_shard_0.shard", "shard.00000.mds", "manifest-md5.txt", "train_0.bin"),
    *("a\nb.bin", "\x1b[2J.bin", os.fsdecode(b"\xff.bin"), "n" * 255, "-rf", "back\\slash", " "),
]


def trees(base: Path, first: int, every: int) -> Iterator[tuple[str, Path]]:
    """Yield directories with something odd in each, alone and beside what is sound."""
    all_ = enumerate(itertools.product(ODD, NAMES))
    for number, (kind, name) in itertools.islice(all_, first, None, every):
        path = base / str(number) / "tree"
        if number % 2:
            shutil.copytree(base / "sound", path)
            (path / name).unlink(missing_ok=True)
        else:
            path.mkdir(parents=True)
        (path.parent / "outside").mkdir()
        (path.parent / "outside/x.bin").write_bytes(b"x")
        os.mkfifo(path.parent / "outside/fifo")
        ODD[kind](path / name)
        yield f"{kind} {name!r}", path
    tops = itertools.islice(ODD.items(), first % 5, None, min(every, 5))
    for kind, make in tops:  # what is given is odd itself
        path = base / f"top {kind}"
        if "link" not in kind:
            make(path)
            yield kind, path


def commands(path: Path, sound: Path, place: Path) -> Iterator[tuple[str, ...]]:
    """Yield what is asked of a tree; what is sound is compared with it."""
    copy = shutil.copytree(sound, place / "copy")
    (copy / "acts000000.bin").unlink()
    odd = str(path)
    yield from (("validate", odd), ("validate", "-r", odd), ("validate", "-r", odd, "--json"))
    yield ("validate", odd, "--strict", "--level", "valid", "-v")
    yield from (("explain", odd), ("explain", odd, "--json"), ("doctor", odd))
    for level in ("complete", "valid"):
        yield ("validate", str(sound), "--against", odd, "--level", level)
    yield ("validate", odd, "--against", str(sound), "--broken", "names")
    yield ("validate", str(sound), "--against", f"file://{odd}")
    yield ("stage", odd, "--to", str(place))
    yield from (("report", odd), ("report", str(sound), "--html", odd))
    yield ("report", str(sound), "--since", f"{odd}/metadata.json", "--junit", str(place / "x.xml"))
    yield from (("receipts", odd), ("receipts", odd, "--pending"), ("receipts", odd, "--json"))
    yield from (("checkpoint", verb, odd) for verb in ("verify", "show", "latest"))
    yield ("adopt", odd, "--from", f"file://{sound}")
    yield ("adopt", str(copy), "--from", f"file://{odd}")
    yield ("fetch", f"file://{odd}/x.bin", str(place / "copy"), "--attempts", "1")
    yield ("fetch", f"file://{sound}/shards.json", odd, "--attempts", "1")
    yield ("repair", odd, "--from", str(sound), "--dry-run")
    yield ("repair", str(copy), "--from", odd)
    yield ("seal", odd)
    yield ("seal", odd, "--update")


def invoked(args: tuple[str, ...]) -> str:
    """Run a command; return what it did that it should not."""
    said: list[str] = []
    sys.unraisablehook = lambda found: said.append(f"unraisable: {found.exc_value!r}")

    def refuse(*_: object) -> None:
        raise TimeoutError("it waits without end")

    signal.signal(signal.SIGALRM, refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        signal.alarm(PATIENCE)
        done = CliRunner().invoke(app.app, [*args], prog_name="shardproof")
        signal.alarm(0)
        gc.collect()
    if not isinstance(done.exception, (SystemExit, type(None))):
        said.append(repr(done.exception))
    if "Traceback" in done.output or "\x1b" in done.output:
        said.append(done.output)
    if done.exit_code not in range(4):
        said.append(f"exit code {done.exit_code}")
    if done.exit_code and not done.output.strip() and "--broken" not in args:
        said.append(f"exit code {done.exit_code} without a word")
    return "; ".join([*said, *(str(each.message) for each in caught)])


def problems(base: Path, first: int, every: int) -> Iterator[str]:
    """Yield each case in which a command forgot its manners."""
    sound = write_layout(Layout(n_shards=2), base / "sound")
    n_cases = 0
    for what, path in trees(base, first, every):
        place = base / "place"
        place.mkdir()
        for args in commands(path, sound, place):
            n_cases += 1
            with without_root_override():
                problem = invoked(args)
            if problem:
                yield f"{what}: {args}: {problem}"
        shutil.rmtree(place)
    sys.stderr.write(f"{n_cases} cases\n")


if __name__ == "__main__":
    formats.names()
    for line in problems(Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:])):
        sys.stdout.write(f"{line!a}\n")

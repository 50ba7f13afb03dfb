"""Shards directories in a fake file system (pyfakefs), which knows when code leaves it.

Take it for code that uses `open`, `os.open`, `os.read`, `os.stat`, `os.scandir` or `pathlib`:
permissions count without privileges, and nothing is written to any disk. For everything else take
`shardproof.testing.shards_dir`, which is several times faster besides.

**What pyfakefs lets through is refused here**, with a `NotFakedError`: `os.pread` and its kin,
`mmap`, and what C code does with a descriptor. In pyfakefs these read, and write, the real file
that has the same number; here fake descriptors have numbers that no real one has.
docs/fake-file-system.md lists those calls, what is patched, where pyfakefs differs from a disk, and
what to import before.
"""

import contextlib
import fcntl
import functools
import inspect
import itertools
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from shardproof._base.imports import extra, import_all
from shardproof.testing.samples._directories import MakeShardsDir, layout_of_maker, write_layout
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import ShardState

with extra():
    import pyfakefs
    from pyfakefs.fake_filesystem import FakeFilesystem
    from pyfakefs.fake_filesystem_unittest import Patcher
    from pyfakefs.fake_io import FakeIoModule, FakeIoModule2
    from pyfakefs.fake_open import fake_open
    from pyfakefs.fake_os import FakeOsModule

__all__ = ["NotFakedError", "fake_shards_dir", "fake_shards_dir_maker"]

_FIRST = 1_500_000_000
"""The first fake descriptor: far above fs.nr_open (proc_sys_fs(5)), which is 1 048 576 unless
it was raised, and no round number, as sizes are, for which it could be taken."""

_N_STREAMS = 3  # standard input, output and error, which pyfakefs adds first

# pyfakefs replaces what it fakes in this module too, but not inside of objects.
_REAL = types.SimpleNamespace(fcntl=fcntl, open=open)

_UNFAKED = {
    # How many of the first arguments are descriptors or paths.
    **dict.fromkeys(("pread", "preadv", "readv", "pwrite", "pwritev", "writev"), 1),
    **dict.fromkeys(("posix_fadvise", "posix_fallocate", "lockf", "fchown", "fchdir"), 1),
    **dict.fromkeys(("fstatvfs", "fpathconf", "statvfs", "pathconf", "mkfifo", "lchown"), 1),
    **dict.fromkeys(("copy_file_range", "sendfile", "splice"), 2),
    # pyfakefs has these, but numpy calls dup to hand the new number to C.
    **dict.fromkeys(("dup", "dup2"), 1),
}

_UNFAKED = {name: n for name, n in _UNFAKED.items() if hasattr(os, name)}  # macOS lacks some

_LOCKS = ("fcntl", "flock", "ioctl", "lockf")  # which pyfakefs passes over in silence

# Events that real calls raise, however they were reached, and faked ones do not (PEP 578).
_AUDITED = {"open", "mmap.__new__", *(f"fcntl.{name}" for name in _LOCKS)}
_OF_OS = "chdir chmod chown link listdir mkdir remove rename rmdir scandir symlink truncate utime"
_AUDITED |= {f"os.{name}" for name in _OF_OS.split()}

_CALLS = {
    "mmap.__new__": "mmap.mmap (which numpy.memmap calls)",
    "open": "io.FileIO (or an open that was bound before)",
    "os.dup": "os.dup (which numpy.fromfile and ndarray.tofile call)",
    "os.remove": "os.remove or os.unlink",
}


class NotFakedError(BaseException):
    """A call that would have left the fake file system for the real one, and was not made.

    It is no `OSError`, which a loader takes for a bad file, and no `Exception`, which many a loader
    takes for a reason to skip a sample: the test would pass and prove nothing. Where code holds it
    back all the same, as a worker thread may, it is raised once more at the end of the context.
    """


class World:
    """A fake file system, and what is known of it."""

    active: "World | None" = None

    def __init__(self, file_system: FakeFilesystem) -> None:
        self.roots: tuple[str, ...] = ()
        self.refused: list[NotFakedError] = []
        self._open_files = _OpenFiles(file_system.open_files)
        file_system.open_files = self._open_files

    def refuse(self, call: str, arguments: Iterable[object]) -> None:
        """Raise if one of the arguments is of this world: the call is one of the real world."""
        for argument in arguments:
            if isinstance(argument, int):
                is_ours = _FIRST <= argument < len(self._open_files)
                files = self._open_files[argument] if is_ours else None
                path = str(files[0].file_path) if files else ""
            elif isinstance(argument, str | bytes | os.PathLike):
                path = os.fsdecode(argument)
                is_ours = path.startswith(self.roots)
            else:
                continue
            if is_ours and path:
                error = NotFakedError(
                    f"{_CALLS.get(call, call)} is not faked and acts on real files only, "
                    f"but was called for the fake '{path}'. Use a real directory: "
                    "shards_dir(...) or the fixture make_shards_dir"
                )
                self.refused.append(error)
                raise error


@contextlib.contextmanager
def faked() -> Iterator[World]:
    """Fake the file system, or join in where this module has done so already."""
    if World.active:
        yield World.active
        return
    if Patcher.PATCHER is not None:  # it numbers descriptors as the kernel does
        raise RuntimeError(
            "expected the real file system, found one that pyfakefs fakes already, as by its "
            "fixture fs: use one of the two"
        )
    import_all()
    _listen()
    modules: dict[str, Any] = {"os": _Os, "io": _Io, "fcntl": _Fcntl}
    if sys.version_info >= (3, 12):  # where `open` belongs to it
        modules["_io"] = _LowIo
    with Patcher(allow_root_user=False, modules_to_patch=modules) as patcher:
        assert patcher.fs  # there is none before setUp only
        World.active = world = World(patcher.fs)
        try:
            yield world
        except NotFakedError:
            raise
        except BaseException as error:
            for refusal in world.refused:
                error.add_note(f"Before that, NotFakedError was held back: {refusal}")
            raise
        finally:
            World.active = None
    for refusal in world.refused:
        raise refusal


class _OpenFiles(list[Any]):
    """pyfakefs's table of open files, numbered from `_FIRST` after the three streams."""

    def __len__(self) -> int:
        n_files = super().__len__()
        return n_files if n_files < _N_STREAMS else n_files - _N_STREAMS + _FIRST

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, int) and _N_STREAMS <= number < _FIRST:
            return None
        return super().__getitem__(self._place(number))

    def __setitem__(self, number: Any, files: Any) -> None:
        super().__setitem__(self._place(number), files)

    @staticmethod
    def _place(number: Any) -> Any:
        is_ours = isinstance(number, int) and number >= _FIRST
        return number - _FIRST + _N_STREAMS if is_ours else number


def _unfaked(module: Any, name: str, n_arguments: int) -> Callable[..., Any]:
    """Return the real function, for what is real."""
    real = getattr(module, name)

    @functools.wraps(real)
    def call(_self: object, *args: Any, **kwargs: Any) -> Any:
        if World.active:
            first = itertools.islice(itertools.chain(args, kwargs.values()), n_arguments)
            World.active.refuse(f"{module.__name__}.{name}", first)
        return real(*args, **kwargs)

    return call


def _either(name: str) -> Callable[..., Any]:
    """Return the faked function, or the real one for a real descriptor."""
    real, fake = getattr(os, name), getattr(FakeOsModule, name)

    @functools.wraps(real)
    def call(self: FakeOsModule, *args: Any, **kwargs: Any) -> Any:
        if _is_real(next(itertools.chain(args, kwargs.values()), None)):
            return real(*args, **kwargs)
        return fake(self, *args, **kwargs)

    return call


def _is_real(argument: object) -> bool:
    return isinstance(argument, int) and argument < _FIRST


_Os = type(
    "_Os",
    (FakeOsModule,),
    {
        "dir": staticmethod(lambda: [*FakeOsModule.dir(), *_UNFAKED]),
        "pipe": staticmethod(os.pipe),
        **{
            name: _either(name)
            for name, _ in inspect.getmembers(FakeOsModule, inspect.isfunction)
            if hasattr(os, name) and name not in {"pipe", "umask"}
        },
        **{name: _unfaked(os, name, n) for name, n in _UNFAKED.items()},
    },
)


class _Fcntl:
    """What `fcntl` is inside: the real one, which works on real descriptors."""

    def __init__(self, _file_system: FakeFilesystem) -> None:
        pass

    @staticmethod
    def dir() -> list[str]:
        return list(_LOCKS)

    fcntl, flock, ioctl, lockf = (_unfaked(fcntl, name, 1) for name in _LOCKS)

    def __getattr__(self, name: str) -> Any:
        return getattr(_REAL.fcntl, name)


class _Io(FakeIoModule):
    """What `io` is inside."""

    def open(self, file: Any, *args: Any, **kwargs: Any) -> Any:  # pragma: no cover - see below
        if _is_real(file):
            return _REAL.open(file, *args, **kwargs)
        return fake_open(self.filesystem, self.skip_names, file, *args, **kwargs)


# pyfakefs asks the stack which file calls, so as to leave pytest alone, and passes over its own.
# Thereby coverage takes the lines for those of another file.
_Io.open.__code__ = _Io.open.__code__.replace(co_filename=pyfakefs.__file__)


class _LowIo(FakeIoModule2):
    """What `_io` is inside, from Python 3.12 on."""

    open = _Io.open


@functools.cache
def _listen() -> None:
    """Refuse real calls, however they are reached; an audit hook can not be removed (PEP 578)."""
    audited, worlds = _AUDITED, World  # which outlive this module at the interpreter's end

    # In an audit hook nothing is traced.
    def hear(event: str, arguments: tuple[Any, ...]) -> None:  # pragma: no cover
        if worlds.active and event in audited:
            paths = (argument for argument in arguments[1:] if not isinstance(argument, int))
            worlds.active.refuse(event, [*arguments[:1], *paths])

    sys.addaudithook(hear)


# pyfakefs has no such files; an emptied file that os.truncate extends reads as empty there.
_UNKNOWN_STATES = (ShardState.FIFO, ShardState.SOCKET, ShardState.SPARSE)


@contextlib.contextmanager
def fake_shards_dir(layout: Layout, to: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Fake the file system in a context, with one shards directory in it; yield its absolute path.

    No user may do everything, so that unreadable shards are unreadable for root too. Inside another
    such context both directories are there until the outer one ends.

    `shardproof.validate` works on it at every level.

    Args:
        layout: What to write. No shard may be ``fifo``, ``socket`` or ``sparse``.
        to: Where, as for `write_layout`; by default at ``layout.folder`` in ``/scratch``.

    Raises:
        ValueError: A state that pyfakefs has not.
        FileExistsError: An outer context has a directory at this place.
        RuntimeError: pyfakefs fakes the file system already, as by its fixture ``fs``.
        NotFakedError: At the end: something inside would have left the fake file system.

    Example:
        >>> with fake_shards_dir(Layout(n_shards=2)) as path:
        ...     str(path.parent), len((path / "acts000000.bin").read_bytes())
        ('/scratch/saev/shards', 1024)
        >>> with fake_shards_dir(Layout(n_shards=2, unreadable=[1])) as path:
        ...     (path / "acts000001.bin").read_bytes()
        Traceback (most recent call last):
        PermissionError: [Errno 13] Permission denied...
    """
    for state in _UNKNOWN_STATES:
        if indices := layout.indices(state):
            raise ValueError(
                f"{state}: expected none, because pyfakefs has no such file; found shards "
                f"{list(indices)}. Use a real directory: shards_dir(...) or the fixture "
                "make_shards_dir"
            )
    with faked() as world:
        path = write_layout(layout, to or f"/scratch/{layout.folder}")
        world.roots += (str(path.parent if layout.format.is_prefix else path),)
        yield path


@contextlib.contextmanager
def fake_shards_dir_maker() -> Iterator[MakeShardsDir]:
    """Yield what the fixture ``make_fake_shards_dir`` gives; from its first call on all is fake."""
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()

        def make(n_shards: int = 3, **keywords: Any) -> Path:
            layout = layout_of_maker(n_shards, **keywords)
            own = f"/scratch/{next(numbers)}/{layout.folder}"
            return stack.enter_context(fake_shards_dir(layout, own))

        yield make

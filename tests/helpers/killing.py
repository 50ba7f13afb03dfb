"""Kill a process at each system call that it makes, so that what it leaves is seen and not guessed.

Between two system calls, nothing of a process changes on a disk. So a process that is killed before
its first call, before its second, and so on until it ends by itself, was killed at every moment
that there is. Linux stops it there (ptrace(2)).
"""

import contextlib
import ctypes
import errno
import faulthandler
import itertools
import os
import platform
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from tests.helpers.forking import forked

T = TypeVar("T")

Begin = Callable[[], None]
Chosen = Callable[[Sequence[T]], Iterable[T]]
"""Which of all cases are run."""


def every(cases: Sequence[T]) -> Sequence[T]:
    """All of them."""
    return cases


PATIENCE = 300
"""Seconds after which a child ends itself that waits for a lock which nobody holds.

The time counts in which it is held at its calls, which is a minute on a machine that is busy.
"""

_TRACEME, _CONT, _SYSCALL, _SETOPTIONS = 0, 7, 24, 0x4200
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000
"""Mark stops at system calls; follow forks and threads; die with the tracer."""
_AT_A_CALL = signal.SIGTRAP | 0x80
_WALL = 0x40000000  # threads, too
_REFUSED = 100  # exit codes from here on: errno of PTRACE_TRACEME
_GET_SYSCALL_INFO = 0x420E

# Of syscalls(2) on x86_64, what changes no file: read close stat fstat lstat poll lseek mmap
# mprotect munmap brk rt_sigaction rt_sigprocmask pread64 access madvise dup getpid fcntl getcwd
# readlink geteuid sigaltstack statfs gettid futex sched_getaffinity getdents64 clock_gettime
# newfstatat readlinkat faccessat set_robust_list preadv prlimit64 getrandom statx rseq
_READS = {0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 21, 28, 32, 39, 72, 79, 89, 107, 131}
_READS |= {137, 186, 202, 204, 217, 228, 262, 267, 269, 273, 295, 302, 318, 332, 334}
_OPENAT = 257


class NotPermittedError(Exception):
    """The platform doesn't let a process be traced."""


def at_every_call(act, *, prepare, check, choose=every) -> int:
    """Kill ``act`` in a child before its first system call, its second, and so on."""
    made = itertools.count()

    def look_on(_: int) -> bool:
        next(made)
        return False

    prepare()
    with _on_one_core():
        assert _ends_by_itself(act, look_on)
    n_kills = 0
    for n_calls in choose(range(next(made))):
        prepare()
        while ends_by_itself(act, n_calls):  # it made fewer calls than the run that was counted
            n_calls -= 1  # noqa: PLW2901 - the last that there is
            prepare()
        n_kills += 1
        with _said_where(n_calls):
            check(n_calls)
    return n_kills


def at_every_state(act, path, *, check, choose=every) -> int:
    """Check a directory as it would be left at each system call, without a child for each."""
    found: dict[Tree, int] = {}
    n_calls = 0

    def look() -> None:
        nonlocal n_calls
        found.setdefault(tree_of(path), n_calls)
        n_calls += 1

    stop_at_every_change(act, look)
    n_states = 0
    for tree, number in choose([*found.items()]):
        n_states += 1
        _put_back(path, tree)
        with _said_where(number):
            check(number)
    return n_states


Tree = tuple[tuple[str, bytes | None], ...]


def tree_of(path: Path) -> Tree:
    """All that is in a directory: relative paths with the bytes of files; None for directories."""
    found: list[tuple[str, bytes | None]] = []
    for root, directories, files in os.walk(path):
        found += [(os.path.relpath(os.path.join(root, name), path), None) for name in directories]
        for name in files:
            file = Path(root, name)
            with contextlib.suppress(FileNotFoundError):  # another thread is not stopped
                leads_nowhere = file.is_symlink() and not file.exists()
                data = os.fsencode(file.readlink()) if leads_nowhere else file.read_bytes()
                found.append((os.path.relpath(file, path), data))
    return tuple(sorted(found, key=lambda entry: entry[0]))


def _put_back(path: Path, tree: Tree) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, data in tree:
        if data is None:
            (path / name).mkdir()
        else:
            (path / name).write_bytes(data)


@contextlib.contextmanager
def _said_where(n_calls: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"after it was killed at its system call number {n_calls + 1}")
        raise


def stop_at_every_change(act, look, *, is_only_child=False) -> None:
    """Run ``act`` in a child, and look each time before a system call that may change a file.

    So each state between two calls is seen, the last one before the child stops. Where nobody
    else's child is there, processes may leave their group.
    """

    def look_on(thread: int) -> bool:
        if _may_change_a_file(thread):
            look()
        return False

    with _on_one_core():
        assert _ends_by_itself(act, look_on, is_only_child=is_only_child)


def ends_by_itself(act: Callable[[Begin], object], n_calls: int) -> bool:
    """Kill ``act`` in a child after so many system calls; say whether it ended before that."""
    with _on_one_core():
        return _ends_by_itself(act, _after(n_calls))


def _after(n_calls: int) -> Callable[[int], bool]:
    """Return what says of each call whether so many were made before it."""
    made = itertools.count()
    return lambda _: next(made) >= n_calls


@contextlib.contextmanager
def _on_one_core() -> Iterator[None]:
    """Two processes that wait for each other in turns are faster so, by far."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(cores))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _ends_by_itself(act, enough, *, is_only_child=False) -> bool:
    pid = _started(act)
    whom = -1 if is_only_child else -pid
    try:
        _set_going(pid, whom)
        _trace(_SYSCALL, pid)
        ended = _next_mark(pid, whom, _SYSCALL, enough)
    except BaseException:
        _kill(pid)
        raise
    if not ended:
        _kill(pid)
        return False
    _trace(_CONT, pid)
    code = os.waitstatus_to_exitcode(_status_at_exit(pid, whom))
    assert code == 0, f"the child ended with {code}"
    return True


def skip_where_not_permitted() -> None:
    """Skip the test where no process may be traced."""
    import pytest  # not where writers are interrupted, whose interpreters have none

    if not sys.platform.startswith("linux") or platform.machine() not in {"x86_64", "aarch64"}:
        pytest.skip(f"not traced on {sys.platform} {platform.machine()}")
    try:
        ends_by_itself(lambda begin: begin(), 10**6)
    except NotPermittedError as refused:
        pytest.skip(f"ptrace is not permitted here: {refused}")


def _started(act: Callable[[Begin], object]) -> int:
    return forked(lambda: _be_the_child(act))


def _be_the_child(act: Callable[[Begin], object]) -> NoReturn:
    code = 1
    try:
        os.setsid()  # a group of its own: waited for, threads and all, without anybody else's child
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        if number := _trace(_TRACEME, 0):
            code = _REFUSED + number
            return
        _stop()
        act(_stop)
        _stop()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing of the parent's is to run a second time: no atexit, no finally


def _stop() -> None:
    signal.raise_signal(signal.SIGSTOP)


def _set_going(pid: int, whom: int) -> None:
    """Let the child run until it calls what it was given."""
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) > _REFUSED:
        raise NotPermittedError(os.strerror(os.WEXITSTATUS(status) - _REFUSED))
    _expect(status)
    _trace(_SETOPTIONS, pid, _OPTIONS)
    _trace(_CONT, pid)
    _next_mark(pid, whom, _CONT, lambda _: False)


def _next_mark(pid: int, whom: int, request: int, enough: Callable[[int], bool]) -> bool:
    """Go on until the child stops itself; False where there were enough calls before that."""
    inside: set[int] = set()  # threads that are in a call: the next stop is at its end
    while True:
        thread, status = os.waitpid(whom, _WALL)
        if not os.WIFSTOPPED(status):
            assert thread != pid, f"the child ended with {os.waitstatus_to_exitcode(status)}"
            continue
        deliver = 0
        if os.WSTOPSIG(status) == _AT_A_CALL:
            if thread not in inside and enough(thread):
                return False
            inside ^= {thread}
        elif os.WSTOPSIG(status) == signal.SIGSTOP:
            if thread == pid:
                return True
        elif os.WSTOPSIG(status) != signal.SIGTRAP:
            deliver = os.WSTOPSIG(status)
        _trace(request, thread, deliver)


class _Call(ctypes.Structure):
    """What ptrace(2) says of a system call at its beginning."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("architecture", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


def _may_change_a_file(thread: int) -> bool:
    """Say whether the call that a thread is about to make may do so; in doubt it may."""
    call = _Call()
    n_bytes = ctypes.c_void_p(ctypes.sizeof(call))
    asked = ctypes.c_long(_GET_SYSCALL_INFO), ctypes.c_long(thread), n_bytes, ctypes.byref(call)
    if platform.machine() != "x86_64" or _libc.ptrace(*asked) == -1:
        return True
    if call.number == _OPENAT:
        return bool(call.arguments[2] & (os.O_CREAT | os.O_TRUNC))
    return call.number not in _READS


def _expect(status: int) -> None:
    assert os.WIFSTOPPED(status), f"the child ended with {os.waitstatus_to_exitcode(status)}"
    assert os.WSTOPSIG(status) == signal.SIGSTOP


def _kill(pid: int) -> None:
    """End the child with all of its threads and what it started."""
    for target in (-pid, pid):
        try:
            os.kill(target, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    with contextlib.suppress(ChildProcessError):
        _status_at_exit(pid, -pid)


def _status_at_exit(pid: int, whom: int) -> int:
    """Wait until the child is gone; its threads are waited for as well, or it would never be."""
    while True:
        thread, status = os.waitpid(whom, _WALL)
        if os.WIFSTOPPED(status):
            _trace(_CONT, thread)
        elif thread == pid:
            return status


_libc = ctypes.CDLL(None, use_errno=True)


def _trace(request: int, pid: int, data: int = 0) -> int:
    """Call ptrace(2); return errno, which is zero where it did as it was told."""
    arguments = (ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(), ctypes.c_long(data))
    if _libc.ptrace(*arguments) != -1:
        return 0
    number = ctypes.get_errno()
    if request != _TRACEME and number != errno.ESRCH:  # ESRCH: killed by somebody else meanwhile
        raise OSError(number, os.strerror(number))
    return number

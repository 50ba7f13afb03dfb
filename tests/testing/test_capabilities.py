"""`without_root_override`: chmod 0 keeps out root too, for one thread, and only for a while."""

import concurrent.futures
import contextlib
import ctypes
import errno
import re
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof.testing import without_root_override
from shardproof.testing.samples import _directories
from tests.helpers.descriptors import needs_proc

DAC_OVERRIDE_AND_READ_SEARCH = 0b110  # bits 1 and 2, capabilities(7)


pytestmark = needs_proc


@pytest.fixture(autouse=True)
def nothing_lost() -> Iterator[None]:
    """What one test loses, the next would take for what was never there."""
    before = effective()
    yield
    assert effective() == before


def effective() -> int:
    status = Path("/proc/thread-self/status").read_text()
    return int(re.findall(r"CapEff:\s*(\w+)", status)[0], 16)


def test_two_bits_go_and_come_back_also_after_an_error_and_in_nested_contexts() -> None:
    before = effective()
    with contextlib.suppress(ZeroDivisionError), without_root_override():
        with without_root_override():
            assert effective() == before & ~DAC_OVERRIDE_AND_READ_SEARCH
        assert effective() == before & ~DAC_OVERRIDE_AND_READ_SEARCH
        raise ZeroDivisionError
    assert effective() == before


def test_threads_started_inside_inherit_it_and_those_that_run_already_keep_theirs(tmp_path) -> None:
    locked = tmp_path / "locked"
    locked.touch(mode=0)

    def look() -> int:
        with pytest.raises(PermissionError):
            locked.read_bytes()
        return effective()

    before = effective()
    with concurrent.futures.ThreadPoolExecutor(1) as old:
        ident = old.submit(threading.get_ident).result()
        with without_root_override(), concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(look).result() & DAC_OVERRIDE_AND_READ_SEARCH == 0
            assert old.submit(threading.get_ident).result() == ident
            assert old.submit(effective).result() == before


def test_elsewhere_than_on_linux_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(_directories, "_libc", _directories._libc.__wrapped__)
    before = effective()
    with without_root_override():
        assert effective() == before


def test_a_kernel_that_refuses_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_header: object, _blocks: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(_directories, "_libc", lambda: types.SimpleNamespace(capget=refuse))
    with pytest.raises(PermissionError, match="capget: Operation not permitted"):
        without_root_override().__enter__()

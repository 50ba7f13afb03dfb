"""The killer sees what is there to be seen: else that it sees nothing would prove nothing."""

import os
import shutil
from collections.abc import Iterator

import pytest

from shardproof._base import files as _files
from tests.helpers.killing import (
    Begin,
    at_every_call,
    at_every_state,
    skip_where_not_permitted,
)


@pytest.fixture(autouse=True, scope="module")
def _ptrace() -> None:
    skip_where_not_permitted()


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_disks() -> Iterator[None]:
    """What was written is there whether it was synced or not: a killed process is no power cut."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        yield


OLD, NEW = b"old " * 64, b"new " * 64


def torn_and_lost(path, write) -> tuple[int, int, int]:
    """How often a file that is replaced was neither old nor new, or gone; and the kills."""
    torn, lost = [], []

    def prepare() -> None:
        for name in os.listdir(path.parent):
            os.unlink(path.parent / name)
        path.write_bytes(OLD)

    def check(n_calls: int) -> None:
        if not path.exists():
            lost.append(n_calls)
        elif path.read_bytes() not in {OLD, NEW}:
            torn.append(n_calls)

    def act(begin) -> None:
        begin()
        write(path, NEW)

    n_kills = at_every_call(act, prepare=prepare, check=check)
    write(path, NEW)
    assert path.read_bytes() == NEW
    return len(torn), len(lost), n_kills


class TestTheKiller:
    @pytest.mark.slow
    def test_a_file_that_is_removed_and_written_is_lost_and_torn(self, tmp_path) -> None:
        def write(path, data: bytes) -> None:
            path.unlink()
            path.write_bytes(data)

        torn, lost, _ = torn_and_lost(tmp_path / "x", write)
        assert torn
        assert lost

    @pytest.mark.slow
    def test_a_file_that_is_written_whole_is_neither(self, tmp_path) -> None:
        torn, lost, n_kills = torn_and_lost(tmp_path / "x", _files.write_whole)
        assert (torn, lost) == (0, 0)
        assert n_kills > 5  # open, write, fsync, close, rename, and the directory's

    @pytest.mark.slow
    def test_states_are_those_after_kills(self, tmp_path) -> None:
        """One child that is looked at leaves what many do that are killed."""
        path = tmp_path / "d"
        killed_states, states = set(), set()

        def act(begin: Begin) -> None:
            begin()
            (path / "a").mkdir()
            with open(path / "x", "wb") as file:
                file.write(b"1" * 9)
                file.flush()
                file.write(b"2" * 9)
            os.rename(path / "x", path / "a" / "y")

        def prepare() -> None:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()

        def state() -> frozenset:
            files = [file for file in path.rglob("*") if file.is_file()]
            return frozenset(str(found.relative_to(path)) for found in path.rglob("*")), *(
                file.read_bytes() for file in files
            )

        at_every_call(act, prepare=prepare, check=lambda _: killed_states.add(state()))
        prepare()
        assert at_every_state(act, path, check=lambda _: states.add(state())) == 6
        assert states == killed_states

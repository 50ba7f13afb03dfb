"""How bytes go from rank to rank: what the store of torch needs, without torch; a stuck engine."""

import os
import signal
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from shardproof import distributed
from shardproof._base.work import Cancelled, Stop, stoppable
from shardproof.distributed import _groups
from shardproof.errors import RankError
from tests.helpers.ranks import PipeGroup, in_processes, on_ranks


class Store(dict[str, bytes]):
    """As a store of torch: what is set stays until it is deleted."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def add(self, key: str, amount: int) -> int:
        self.numbers[key] = self.numbers.get(key, 0) + amount
        return self.numbers[key]

    def delete_key(self, key: str) -> bool:
        return self.pop(key, None) is not None


class ProcessGroup:
    """What a process group of torch has."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store, self._rank = store, rank

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return 2

    def get_group_store(self) -> Store:
        return self._store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def process_groups(store) -> list[ProcessGroup]:
    return [ProcessGroup(store, rank) for rank in range(2)]


class TestTorch:
    def test_long_messages_go_in_pieces_and_leave_nothing(
        self, process_groups, store, monkeypatch
    ) -> None:
        monkeypatch.setattr(_groups, "_PIECE", 7)
        one, other = map(distributed.group_of, process_groups)
        for message in (b"0123456", b"a longer message than seven bytes", b"!"):
            one.send(message, 1)
            assert other.receive(0, 0.0) == message
        assert (other.receive(0, 0.01), one.receive(1, 0.0)) == (None, None)
        assert store == {}

    def test_a_check_by_two_ranks_twice(self, process_groups, make_shards_dir, store) -> None:
        path = make_shards_dir(6)

        def call(group: PipeGroup) -> list[bool]:
            own = process_groups[group.rank]
            return [distributed.validate(path, group=own, timeout=30).ok for _ in range(2)]

        assert on_ranks(call, "a", "b") == [[True, True]] * 2

    def test_what_was_given_up_takes_no_message_of_a_later_call(self, process_groups) -> None:
        one, other = map(distributed.group_of, process_groups)
        one.send(b"later", 1)
        given_up = Stop()
        given_up.set()
        with pytest.raises(Cancelled):
            stoppable(lambda: other.receive(0, 0.0), given_up)
        assert other.receive(0, 0.0) == b"later"


def test_an_mpi_of_one_thread_is_refused(monkeypatch) -> None:
    """The real one is in tests/cluster."""
    mpi = SimpleNamespace(Query_thread=lambda: 0, THREAD_SERIALIZED=2)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    names = ("Get_rank", "Get_size", "isend", "iprobe")
    with pytest.raises(ValueError, match=r"mpi4py\.rc\.thread_level"):
        distributed.group_of(SimpleNamespace(**dict.fromkeys(names)))


class StuckGroup(PipeGroup):
    """An engine whose calls don't come back from the second message on."""

    never = threading.Event()

    def receive(self, source: int, timeout: float) -> bytes | None:
        if getattr(self, "has_received", False):
            self.never.wait()
        found = super().receive(source, timeout)
        self.has_received = found is not None
        return found


def test_a_call_of_the_engine_that_never_returns_is_given_up(make_shards_dir) -> None:
    path = make_shards_dir(3)

    def call(group: PipeGroup) -> Any:
        if group.rank == 1:
            group = StuckGroup(1, group.pipes, "node1")
        return distributed.validate(path, group=group, timeout=0.5)

    found = on_ranks(call, "node1", "node1")
    assert {type(each) for each in found} == {RankError}
    assert str(found[1]) == "rank 0 on node1 has not answered for 0.5 s"
    StuckGroup.never.set()


def test_an_interrupt_of_one_rank_ends_the_others_by_name(make_shards_dir, tmp_path) -> None:
    path = make_shards_dir(30)

    def call(group: PipeGroup) -> None:
        from shardproof import checks

        if group.rank == 1:
            real = checks.look_at_all
            kill = [signal.SIGINT]

            def look(*args: Any) -> Any:
                while kill:
                    os.kill(os.getpid(), kill.pop())
                    threading.Event().wait(0.2)
                return real(*args)

            checks.look_at_all = look
        try:
            distributed.validate(path, group=group, timeout=30)
        except BaseException as error:
            (tmp_path / f"{group.rank}").write_text(f"{type(error).__name__}: {error}")

    for pid in in_processes(call, "node1", "node1", "node2"):
        os.waitpid(pid, 0)
    texts = [(tmp_path / f"{rank}").read_text() for rank in range(3)]
    assert texts[1] == "KeyboardInterrupt: "
    assert texts[0] == texts[2] == "RankError: rank 1 on node1 was interrupted"

"""Processes that go on in turns, a few system calls at a time: a race that can be run again."""

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence

from shardproof._base import work
from tests.helpers.killing import (
    _CONT,
    _SYSCALL,
    Begin,
    _after,
    _kill,
    _next_mark,
    _on_one_core,
    _set_going,
    _started,
    _status_at_exit,
    _trace,
)

Act = Callable[[], str]
"""What a process does; what it returns is told to who reads `Player.said`."""

_TO_THE_END = 10**9


class Player:
    """A process that stands still, and goes on by as many system calls as it is told to."""

    def __init__(self, act: Act) -> None:
        self._reader, writer = os.pipe()
        self._pid = _started(lambda begin: _play(act, begin, writer))
        os.close(writer)
        self.said = ""
        self.has_ended = False
        _set_going(self._pid, -self._pid)

    def go_on(self, n_calls: int = _TO_THE_END) -> None:
        """Let it make so many calls, or fewer where it ends before; in a call, half of it."""
        if self.has_ended:
            return
        _trace(_SYSCALL, self._pid)
        if _next_mark(self._pid, -self._pid, _SYSCALL, _after(n_calls)):
            self._end()

    def _end(self) -> None:
        _trace(_CONT, self._pid)
        code = os.waitstatus_to_exitcode(_status_at_exit(self._pid, -self._pid))
        assert code == 0, f"the child ended with {code}"
        self.has_ended = True
        with open(self._reader, closefd=False) as file:
            self.said = file.read()

    def close(self) -> None:
        """Kill it, if it is there."""
        if not self.has_ended:
            _kill(self._pid)
        os.close(self._reader)


def _play(act: Act, begin: Begin, writer: int) -> None:
    # A turn is one thread's: what would be done in another one, for the sake of interrupts, is
    # done here.
    work.is_main = lambda: False
    begin()
    os.write(writer, act().encode())


@contextlib.contextmanager
def playing(acts: Sequence[Act]) -> Iterator[list[Player]]:
    """Start processes, which stand still, and see to it that none is left."""
    with _on_one_core(), contextlib.ExitStack() as players:
        yield [players.enter_context(contextlib.closing(Player(act))) for act in acts]


def in_turns(acts: Sequence[Act], turns: Sequence[tuple[int, int]]) -> list[str]:
    """Let processes go on in turns, by so many calls, and then each to its end."""
    with playing(acts) as players:
        for number, n_calls in turns:
            players[number].go_on(n_calls)
        for player in players:
            player.go_on()
        return [player.said for player in players]


def turns_of(seed: int, n_players: int, n_calls: int) -> list[tuple[int, int]]:
    """A plan of turns: some of one call, some of many, in all a few times ``n_calls``."""
    luck = random.Random(seed)
    longest = luck.choice([2, 8, 32, n_calls])
    plan, left = [], 2 * n_players * n_calls
    while left > 0:
        turn = luck.randrange(n_players), luck.randint(1, longest)
        plan.append(turn)
        left -= turn[1]
    return plan

"""One call of all ranks: in each round every rank says something, and rank 0 answers each.

Whatever ends the call of one rank ends it for all, with the same error. Every rank says all along
that it lives, from the thread that waits for its work: it is silence that is timed, of a process
that was stopped or killed, and not how long a check takes.
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import msgspec

import shardproof
from shardproof._base import work
from shardproof._base.addresses import is_address
from shardproof._base.messages import joined, quoted, shown, traced, with_kind
from shardproof._base.work import TICK, Cancelled, to_waiter
from shardproof.distributed._groups import Group, group_of
from shardproof.distributed._messages import (
    CallEnded,
    Message,
    SentError,
    by_ranks,
    decoded,
    joint,
    who,
)

__all__ = ["TIMEOUT", "JointCall", "called", "firsts", "in_round", "on_all_ranks", "one_answer"]

TIMEOUT = 300.0
"""Seconds of silence after which a rank is given up, where the caller does not say."""

_BEATS = 10  # signs of life in that time
_LONGER = 1.5  # times as long ranks wait for rank 0: it may be about to name another one
_LINGER = 5.0  # seconds that rank 0 stays for those who read the end: it may host torch's store
_LAST_WORD = 0.1  # seconds in which an interrupted rank says so
_PAUSE = 0.005

Result = TypeVar("Result")
Answers = Callable[[Sequence[Message]], list[bytes]]
"""What rank 0 answers to each rank, of what all of them have said."""


class Peer(msgspec.Struct):
    """What is known of a rank that this one talks to."""

    heard: float = 0.0  # when, in seconds of the call
    token: str = ""
    said: Message | None = None
    is_over: bool = False  # nothing more comes of it


class JointCall:
    """This rank's side: rank 0 talks to all others, and they to rank 0."""

    def __init__(self, group: Group, asked: str, timeout: float) -> None:
        self.group, self.rank, self.timeout = group, group.rank, timeout
        self.hosts, self._asked = {group.rank: group.host}, shown(asked)
        ranks = [0] if group.rank else range(1, group.size)
        self._peers = {rank: Peer() for rank in ranks}
        self._seconds, self._looked = 0.0, time.monotonic()  # in which this process ran, so far
        self._token, self._next_beat, self._at = secrets.token_hex(8), 0.0, 0
        self._has_begun = self._owes = False  # whether all have spoken once; and wait for answers
        self._end: SentError | None = None

    def gather(self, body: bytes, error: SentError | None = None, tip: str = "") -> list[Message]:
        """Return what each rank says in this round, by rank 0."""
        own = Message("", self.group.host, "", "", "said", body, error, self._asked)
        said = {0: own, **self._await()}
        self._has_begun = self._owes = True
        asked = by_ranks(((rank, each.asked) for rank, each in said.items()), self.hosts)
        if len(asked) > 1:
            raise CallEnded(f"the ranks don't call the same: {joined(asked)}")
        if met := {rank: each.error for rank, each in said.items() if each.error}:
            raise CallEnded(joint(met, self.hosts, tip))
        return [*said.values()]

    def answer(self, bodies: Sequence[bytes]) -> None:
        """Answer each rank what is for it."""
        for rank, peer in self._peers.items():
            peer.heard = self._seconds
            self._send(rank, "said", bodies[rank])
        self._owes = False

    def exchange(self, body: bytes, error: SentError | None = None) -> bytes:
        """Say something to rank 0, and return its answer."""
        while not self._peers[0].token:
            self.watch(waits=True)
        self._send(0, "said", body, error)
        return self._await()[0].body

    def _await(self) -> dict[int, Message]:
        while not all(peer.said for peer in self._peers.values()):
            self.watch(waits=True)
        said = {rank: peer.said for rank, peer in self._peers.items() if peer.said}
        for peer in self._peers.values():
            peer.said = None
        return said

    def watch(self, *, waits: bool = False) -> None:
        """Hear what there is; show life; raise how the call ends, if a rank is silent, too."""
        work.go_on()
        found = self._reach(lambda: self._look(TICK if waits and self.rank else 0.0))
        if waits and not self.rank and not found:
            time.sleep(_PAUSE)
        if ends := [end for rank, data in found if (end := self._heed(rank, data))]:
            raise ends[0]
        now, beat = time.monotonic(), self.timeout / _BEATS
        self._seconds += min(now - self._looked, beat)  # it may have been stopped
        self._looked = now
        if self._seconds >= self._next_beat:
            self._next_beat = self._seconds + beat
            for rank, peer in self._peers.items():
                if (peer.token or self.rank) and not peer.is_over:
                    self._send(rank, "alive")
        patience = self.timeout * (_LONGER if self.rank else 1)
        late = [
            rank
            for rank, peer in self._peers.items()
            if not (peer.said or peer.is_over) and self._seconds - peer.heard > patience
        ]
        if late and not self._owes:
            raise self._without(late, f"not answered for {patience:g} s")

    def _look(self, seconds: float) -> list[tuple[int, bytes | Exception]]:
        """Return the next message of each rank that has one, or why it can't be had."""
        found: list[tuple[int, bytes | Exception]] = []
        for rank in [rank for rank, peer in self._peers.items() if not peer.is_over]:
            self._at = rank
            try:
                data = self.group.receive(rank, seconds)
            except Exception as error:
                found.append((rank, error))
            else:
                found += [] if data is None else [(rank, data)]
        return found

    def _heed(self, rank: int, data: bytes | Exception) -> CallEnded | None:
        """Take what came of a rank; return how that ends the call, if it does."""
        if isinstance(data, Exception):
            return self._without([rank], f"been lost: {with_kind(data)}")
        peer = self._peers[rank]
        try:
            message = decoded(data, who([rank], self.hosts))
        except CallEnded as end:
            self._send(rank, "alive")  # by which it finds that out, too
            peer.is_over = True
            return end
        if message.to not in {"", self._token}:
            return None  # it is left from an earlier call
        if message.token != peer.token:
            if peer.token and self._has_begun:  # the rank is at another call
                peer.is_over = math.isinf(self._next_beat)
                return None
            peer.said = None
        peer.heard, peer.token, self.hosts[rank] = self._seconds, message.token, message.host
        peer.is_over = message.kind == "end"
        if message.kind == "said":
            peer.said = message
        if not message.to:
            self._send(rank, "alive", error=self._end)
        if message.error and (peer.is_over or rank == 0):
            self._end = message.error
            return CallEnded(message.error)
        return None

    def _send(self, to: int, kind: str, body: bytes = b"", error: SentError | None = None) -> None:
        version, token, self._at = shardproof.__version__, self._peers[to].token, to
        host, asked = self.group.host, self._asked
        message = Message(version, host, self._token, token, kind, body, error, asked)
        self._reach(lambda: self.group.send(msgspec.msgpack.encode(message), to))

    def _reach(self, call: Callable[[], Result]) -> Result:
        """Return what a call of the engine does, in a thread that is left behind if it is stuck."""
        # Those of torch's store are, while the process that has it is stopped.
        ticks = itertools.count()

        def watch() -> None:  # which counts, so that it does not matter if this process is stopped
            work.go_on()
            if next(ticks) * TICK > self.timeout:
                raise TimeoutError

        try:
            return work.watched(call, watch, waits=False)
        except TimeoutError:
            raise self._without([self._at], f"not answered for {self.timeout:g} s") from None
        except Exception as error:  # whatever an engine raises
            raise self._without([self._at], f"been lost: {with_kind(error)}") from traced(error)

    def _without(self, ranks: Sequence[int], problem: str) -> CallEnded:
        for rank in ranks:
            self._peers[rank].is_over = True
        verb = "have" if len(ranks) > 1 else "has"
        return CallEnded(f"{who(ranks, self.hosts)} {verb} {problem}")

    def fail(self, error: SentError) -> NoReturn:
        """Tell of an error that this rank met, and raise what all ranks raise."""
        if self.rank:
            self.exchange(b"", error)
        elif not self._owes:
            self.gather(b"", error)
        raise CallEnded(joint({self.rank: error}, self.hosts, ""))

    def end(self, error: SentError | None = None, seconds: float = _LINGER) -> None:
        """Tell the others how the call ends; rank 0 stays until they know, or for a while."""
        error = None if self.rank and self._end else error  # rank 0 has told it
        self._end, self._owes, self._has_begun, self._next_beat = error, True, True, math.inf
        self.timeout, until = min(seconds, self.timeout), time.monotonic() + seconds
        for rank, peer in self._peers.items():
            is_told = self.rank or (error and peer.token)  # one that was stopped may go on
            if is_told and time.monotonic() < until:
                with contextlib.suppress(CallEnded):
                    self._send(rank, "end" if self.rank else "alive", error=error)
        while not (self.rank or all(peer.is_over for peer in self._peers.values())):
            if time.monotonic() > until:
                break
            with contextlib.suppress(CallEnded):
                self.watch(waits=True)


def in_round(call: JointCall, body: bytes, answers: Answers, tip: str = "") -> bytes:
    """Say something, and return the answer; rank 0 makes the answers."""
    if call.rank:
        return to_waiter(call.exchange)(body)
    bodies = answers(to_waiter(call.gather)(body, tip=tip))
    to_waiter(call.answer)(bodies)
    return bodies[0]


def on_all_ranks(
    group: object,
    asked: str,
    part: Callable[[JointCall], bytes],
    answers: Answers,
    timeout: float = TIMEOUT,
) -> bytes:
    """Do this rank's part of a call, and return what rank 0 answers; raise what any rank raises."""

    def run(_: object) -> bytes:
        try:
            try:
                found = work.watched(lambda: in_round(call, part(call), answers), call.watch)
            except CallEnded:
                raise
            except Exception as error:
                call.fail(SentError.of(error))
            call.end()
            return found
        except CallEnded as end:
            call.end(end.error)
            raise end.error.as_error() from None
        except Cancelled:
            said = CallEnded(f"{who([call.rank], call.hosts)} was interrupted").error
            work.stoppable(lambda: call.end(said, _LAST_WORD), work.Stop())
            raise

    call = JointCall(group_of(group), asked, timeout)
    return work.apart(run)


def firsts(said: Sequence[Message]) -> list[bool]:
    """Return for each rank whether it is the first on its host."""
    hosts = [each.host for each in said]
    return [hosts.index(host) == rank for rank, host in enumerate(hosts)]


def called(verb: str, path: str | os.PathLike[str] = "", **how: object) -> str:
    """Return what ranks must call alike; of an address, in which a password may be, a digest."""
    where, given = os.fspath(path), [f"{key}={quoted(how[key])}" for key in sorted(how)]
    if is_address(where):
        given.insert(0, f"address {hashlib.blake2b(os.fsencode(where), digest_size=8).hexdigest()}")
    elif where:
        given.insert(0, quoted(os.path.abspath(where), 4096))
    return f"{verb}({', '.join(given)})"


def one_answer(
    group: object, asked: str, find: Callable[[], Result], *, each_host: bool = False
) -> Result:
    """Return what rank 0 finds, or the first rank of each host: plain data."""

    def part(call: JointCall) -> bytes:
        is_one = not call.rank
        if each_host:
            is_one = bool(in_round(call, b"", lambda said: [b"!" * each for each in firsts(said)]))
        return json.dumps(find()).encode() if is_one else b""

    def answers(said: Sequence[Message]) -> list[bytes]:
        found = {each.host: each.body for each in said if each.body}
        return [found.get(each.host, said[0].body) for each in said]

    found: Result = json.loads(on_all_ranks(group, asked, part, answers))
    return found

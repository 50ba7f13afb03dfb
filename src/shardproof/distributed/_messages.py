"""What ranks say to each other, in msgpack: nothing that arrives is unpickled."""

import builtins
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

import shardproof
from shardproof import errors
from shardproof._base.messages import joined, printable, quoted, shown, told, with_kind
from shardproof.errors import RankError, ShardproofError
from shardproof.report import BrokenFiles

_BUILTIN = {"ImportError", "ModuleNotFoundError", "RuntimeError", "TypeError", "ValueError"}


class SentError(msgspec.Struct, frozen=True, array_like=True):
    """An exception on its way: its class by name, its text, and its fields that are plain."""

    kind: str
    text: str
    fields: dict[str, str | int | float | list[str] | None] = {}

    @classmethod
    def of(cls, error: BaseException) -> "SentError":
        """Return what to say of an exception."""
        kind, fields, text = type(error).__name__, dict(vars(error)), told(error)
        if isinstance(error, OSError):
            fields |= {"errno": error.errno, "filename": error.filename}
        if not isinstance(error, ShardproofError) and kind not in _BUILTIN:
            text = shown(getattr(error, "strerror", None) or with_kind(error))
        plain = {name: _plain(value) for name, value in fields.items()}
        return cls(kind, text, {name: value for name, value in plain.items() if value != ...})

    def as_error(self) -> BaseException:
        """Return an exception of the same class, if that is ours, or one of the system's."""
        ours = getattr(errors, self.kind, None)
        if isinstance(ours, type) and issubclass(ours, ShardproofError):
            error: BaseException = ours.__new__(ours)
            for name, value in self.fields.items():
                setattr(error, name, tuple(value) if isinstance(value, list) else value)
            error.args = (self.text,)
            return error
        if isinstance(number := self.fields.get("errno"), int):
            return OSError(number, self.text, self.fields.get("filename"))
        known = getattr(builtins, self.kind) if self.kind in _BUILTIN else RankError
        return known(self.text)


def _plain(value: Any) -> Any:
    """Return a field of an exception as it is sent; ... for one that is not."""
    if isinstance(value, str):
        return printable(value)  # of bytes that are no text
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return [*map(printable, value)]
    return value if isinstance(value, int | float | None) else ...


class CallEnded(Exception):  # noqa: N818 - it goes no further than to the end of the call
    """The error in which a call ends on every rank: of one, or a problem with some ranks."""

    def __init__(self, error: SentError | str) -> None:
        self.error = SentError.of(RankError(error)) if isinstance(error, str) else error


class Message(msgspec.Struct, frozen=True, array_like=True):
    """What one rank says to another: that it lives, its part of a round, or that it leaves."""

    version: str  # first, so that it can be compared whatever follows
    host: str
    token: str  # of this call of the rank
    to: str  # the token of the other, whose earlier calls had others; empty before it is known
    kind: str  # "alive", "said" or "end"
    body: bytes = b""
    error: SentError | None = None


_decode = msgspec.msgpack.Decoder(Message).decode


def decoded(data: bytes, source: str) -> Message:
    """Return a message of another rank, which must run the same version."""
    here = shardproof.__version__
    try:
        message = _decode(data)
        if message.version == here:
            return message
        found = quoted(message.version)
    except msgspec.DecodeError as error:
        found = f"what can't be read: {told(error)}"
    raise CallEnded(f"expected shardproof {here} on each rank, as here; {source} runs {found}")


def who(ranks: Iterable[int], hosts: Mapping[int, str]) -> str:
    """Return which ranks, on which hosts: ``"ranks 0-3 on node1; rank 5 on node17"``."""
    by_host = defaultdict[str, list[int]](list)
    for rank in sorted(ranks):
        by_host[f" on {shown(hosts[rank])}" if rank in hosts else ""].append(rank)
    names = []
    for where, some in by_host.items():
        plural = "s" * (len(some) > 1)
        names.append(f"rank{plural} {BrokenFiles(indices=tuple(some)).ranges}{where}")
    return joined(names)


def joint(met: Mapping[int, SentError], hosts: Mapping[int, str], tip: str) -> SentError:
    """Return the one error of all ranks; if not all have met the same, it says who met which."""
    by_text = defaultdict[str, list[int]](list)
    for rank, error in sorted(met.items()):
        by_text[error.text].append(rank)
    first, others = met[min(met)], hosts.keys() - met.keys()
    if len(by_text) == 1 and not others:
        return first
    lines = [f"{who(ranks, hosts)}: {text}" for text, ranks in by_text.items()]
    tip = tip if first.kind.startswith("Manifest") else ""
    lines += [f"no error on {who(others, hosts)}{tip}"] if others else []
    return msgspec.structs.replace(first, text="\n".join(lines))

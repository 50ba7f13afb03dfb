"""What ranks say to each other, in msgpack: nothing that arrives is unpickled."""

import os
import typing
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

import shardproof
from shardproof import errors
from shardproof._base.addresses import path_of
from shardproof._base.messages import joined, printable, quoted, shown, told, with_kind
from shardproof.errors import RankError
from shardproof.report import BrokenFiles, FindingKind, Report, ShardValidationError

_BUILTIN = (ImportError, ModuleNotFoundError, RuntimeError, TypeError, ValueError)
_OURS = (
    ShardValidationError,
    *(getattr(errors, name) for name in errors.__all__ if "Kind" not in name),
)
_KNOWN: Mapping[str, type[Any]] = {each.__name__: each for each in (*_BUILTIN, *_OURS)}

Value = TypeVar("Value")


def packed(value: object) -> bytes:
    """Return data as bytes; names are much alike, and become a tenth."""
    encoded = msgspec.msgpack.encode(value, enc_hook=os.fsencode)  # of paths, which may be no text
    return zlib.compress(encoded, level=1)


def unpacked(data: bytes, kind: type[Value]) -> Value:
    """Return the data of bytes that a rank of the same version has packed."""
    return msgspec.msgpack.decode(zlib.decompress(data), type=kind, dec_hook=_of_plain)


def _of_plain(kind: Any, value: Any) -> object:
    if typing.get_origin(kind) is Counter:
        kinds = {each.value: each for each in FindingKind}
        return Counter({kinds[name]: n for name, n in value.items()})
    return path_of(os.fsdecode(value))


class SentError(msgspec.Struct, frozen=True, array_like=True):
    """An exception on its way: the name of its public class, its text, its plain fields."""

    kind: str
    text: str
    fields: dict[str, Any] = {}

    @classmethod
    def of(cls, error: BaseException) -> "SentError":
        """Return what to say of an exception."""
        kinds = [each.__name__ for each in type(error).__mro__ if each in _KNOWN.values()]
        fields, text = dict(vars(error)), told(error)
        if isinstance(error, OSError):
            fields |= {"errno": error.errno, "filename": error.filename}
        if not kinds:
            text = shown(getattr(error, "strerror", None) or with_kind(error))
        plain = {name: _plain(value) for name, value in fields.items()}
        kept = {name: value for name, value in plain.items() if value != ...}
        return cls(kinds[0] if kinds else "", text, kept)

    def as_error(self) -> BaseException:
        """Return an exception of the same class, if that is ours, or one of the system's."""
        known: Any = _KNOWN.get(self.kind)
        if known in _OURS:
            error: BaseException = known.__new__(known)
            for name, value in self.fields.items():
                setattr(error, name, _as_was(value))
            error.args = (self.text,)
            return error
        if isinstance(number := self.fields.get("errno"), int):
            return OSError(number, self.text, self.fields.get("filename"))
        return (known or RankError)(self.text)


def _plain(value: Any) -> Any:
    """Return a field of an exception as it is sent; ... for one that is not."""
    if isinstance(value, Report):
        return packed(value)
    if isinstance(value, str):
        return printable(value)  # of bytes that are no text
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return [*map(printable, value)]
    return value if isinstance(value, int | float | None) else ...


def _as_was(value: Any) -> Any:
    if isinstance(value, bytes):
        return unpacked(value, Report)
    return tuple(value) if isinstance(value, list) else value


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
    asked: str = ""  # what the rank calls


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


def by_ranks(texts: Iterable[tuple[int, str]], hosts: Mapping[int, str]) -> list[str]:
    """Return each text that ranks have, once, with those ranks."""
    ranks = defaultdict[str, list[int]](list)
    for rank, text in sorted(texts):
        ranks[text].append(rank)
    return [f"{who(some, hosts)}: {text}" for text, some in ranks.items()]


def joint(met: Mapping[int, SentError], hosts: Mapping[int, str], tip: str) -> SentError:
    """Return the one error of all ranks; if not all have met the same, it says who met which."""
    first, others = met[min(met)], hosts.keys() - met.keys()
    lines = by_ranks(((rank, error.text) for rank, error in met.items()), hosts)
    if len(lines) == 1 and not others:
        return first
    tip = tip if first.kind.startswith("Manifest") else ""
    lines += [f"no error on {who(others, hosts)}{tip}"] if others else []
    return msgspec.structs.replace(first, text="\n".join(lines))

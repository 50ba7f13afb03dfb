"""Seal JSON files, so that they prove themselves: the last field is a SHA-256 of all before it."""

import hashlib
import re
from typing import Protocol, TypeVar

import msgspec

from shardproof._base import json
from shardproof.errors import CheckpointError, ManifestError

__all__ = ["refusal", "seal", "unseal"]

_TAIL = re.compile(rb'sha256:([0-9a-f]{64})"\}\n')
_TAIL_BYTES = 74


class _Checksummed(Protocol):
    @property
    def checksum(self) -> str:
        """Of the text."""


T = TypeVar("T", bound=_Checksummed)


def seal(value: msgspec.Struct) -> bytes:
    """Return the text of a struct whose last field is ``checksum``, which is computed here."""
    body = msgspec.json.encode(msgspec.structs.replace(value, checksum="")).removesuffix(b'"}')
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def unseal(data: bytes, kind: type[T], *, path: str) -> T:
    """Decode a sealed text, and prove it.

    Raises:
        ManifestError: It is too large, isn't what ``kind`` describes, or its seal is broken.
    """
    if len(data) > json.MAX_BYTES:
        problem = f"expected at most {json.MAX_BYTES} bytes, found {len(data)}"
        raise ManifestError(problem, path=path)
    value = json.decode(data, kind, path=path)
    tail = _TAIL.fullmatch(data[-_TAIL_BYTES:])
    if tail is None:
        raise ManifestError("it doesn't end with its own checksum; restore it", path=path)
    digits = hashlib.sha256(data[:-_TAIL_BYTES]).hexdigest()
    if tail[1] != digits.encode() or value.checksum != f"sha256:{digits}":
        raise ManifestError("its bytes don't have the checksum at its end; restore it", path=path)
    return value


def refusal(error: ManifestError) -> CheckpointError:
    """Return a refusal of JSON as an error about a checkpoint."""
    line = f"line {error.line}: " if error.line is not None else ""
    field = f"field {error.field}: " if error.field is not None else ""
    return CheckpointError(f"{line}{field}{error.problem}", path=error.path)

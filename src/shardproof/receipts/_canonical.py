"""One text for equal values, and its hash: what plans and runs are named by.

Neither the order of a dict shows in it, nor the version of Python, nor the locale, nor how a path
is spelled: ``data//x/`` and ``./data/x`` are equal.
"""

import hashlib
import json
import math
import os
import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from numbers import Integral

from shardproof._base.arguments import plain_number
from shardproof._base.messages import quoted

_HASH_DIGITS = 16  # 64 bits
_MAX_EXACT = 2**53
_MAX_DEPTH = 64
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def hash_of(value: object) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:_HASH_DIGITS]


def canonical_json(value: object) -> bytes:
    """Return the one text of a value; raises as `plain`."""
    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def plain(value: object, where: str = "$", depth: int = 0) -> object:
    """Return a value as dicts, lists and scalars of JSON; ``where`` is what a refusal names."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where}: expected at most {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        items = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: expected keys of type str, found {quoted(key)}")
            items[str(key)] = plain(item, f"{where}.{key}", depth + 1)
        return items
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        value = canonical_path(os.fsdecode(value))
    value = plain_number(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: expected a finite number, found {value}")
        return float(value)
    return _plain_integer(value, where)


def _plain_integer(value: object, where: str) -> int:
    """Return an integer, or a truth value of numpy, which is none, as Python's."""
    if isinstance(value, Integral):
        number = int(value)
        if abs(number) > _MAX_EXACT:
            raise ValueError(f"{where}: expected integers up to 2**53, found {number}")
        return number
    kind = type(value)
    if kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"}:  # the latter of numpy 1
        return bool(value)
    raise TypeError(f"{where}: expected values of JSON or a path, found {kind.__name__}")


def canonical_path(path: str) -> str:
    """Return one spelling for all of a path; a URL is left alone, since ``//`` may matter in it."""
    path = unicodedata.normalize("NFC", path)
    return path if _URL.match(path) else posixpath.normpath(path)

"""JSON from outside, with limits: bytes, nesting, items; a refusal names file, line and field.

What `json` lets through and this module refuses: duplicate keys, NaN and Infinity, numbers out of
range, true where an integer belongs, lone surrogates, encodings other than UTF-8, text after the
end, unknown fields of a struct that forbids them (RFC 8259, section 4 on unique names, section 6 on
numbers).
"""

import contextlib
import errno
import functools
import itertools
import json
import os
import re
from typing import Any, TypeVar

import msgspec

from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import NotRegularError, open_file, open_root
from shardproof._base.opening import closing_fd, file_of, permission_denied, telling_where
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError

MAX_BYTES = 64 * 2**20
"""Largest JSON file that is read: ten times the manifest of 100 000 shards."""

MAX_ITEMS = 8_000_000
"""Most values in one JSON file; counted before decoding, so that memory stays bounded."""

T = TypeVar("T")


def read(
    root: str, name: str, kind: type[T], *, max_bytes: int = MAX_BYTES, usual: type | None = None
) -> T:
    """Return a JSON file of a real directory, decoded as ``kind``; raises as `read_bytes`."""
    data = read_bytes(root, name, max_bytes=max_bytes)
    return decode(data, kind, path=os.path.join(root, name), usual=usual)


def read_bytes(root: str, name: str, *, max_bytes: int) -> bytes:
    """Return what a file holds; a `ManifestError` says why not, else nobody could look."""
    path = os.path.join(root, name)
    try:
        with telling_where(path), closing_fd(open_root(root)) as dir_fd:
            found = open_file(name, root=root, dir_fd=dir_fd)
        with telling_where(path), contextlib.closing(found):
            size, data = found.status.st_size, b""
            file = file_of(found, size)
            if size <= max_bytes:
                # Not max_bytes at once: Python makes room for as many bytes as it is asked for.
                data = file.read(size + 1)
                data = data if len(data) <= size else data + file.read(max_bytes)
    except ManifestError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise ManifestNotFoundError("there is no such file", path=path) from None
    except PermissionError:
        raise ManifestPermissionError(permission_denied(), path=path) from None
    except NotRegularError as error:
        problem = f"expected a regular file, found a {error.found}"
        raise ManifestError(problem, path=path) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            problem = "expected a regular file, found a symbolic link that leads back to itself"
            raise ManifestError(problem, path=path) from None
        raise
    if size > max_bytes or len(data) > max_bytes:
        problem = f"expected at most {max_bytes} bytes, found {max(size, len(data))}"
        raise ManifestError(problem, path=path)
    return data


def decode(data: bytes, kind: type[T], *, path: str, usual: type | None = None) -> T:
    """Return JSON text decoded as ``kind``; a refusal names ``path``."""
    # ``usual`` is a type that the whole text mostly has, whose structs encode no field that a text
    # does not have: then that no key stands twice is seen in a third of the time.
    if len(data) > MAX_ITEMS and (n_items := sum(map(data.count, (b",", b"[", b"{")))) > MAX_ITEMS:
        problem = f"expected at most {MAX_ITEMS} values, found about {n_items}"
        raise ManifestError(problem, path=path)
    try:
        value = msgspec.json.decode(data, type=kind)
        if not data.isascii():
            data.decode()  # msgspec looks only at the text of fields that it knows
        # Each key brings one colon, and a colon inside a string only adds to them: so a text with
        # just as many as its required keys has none twice, and need not be read again to know it.
        items: list[Any] = value if isinstance(value, list) else [value]
        n_keys = _n_required(type(items[0])) * len(items) if items else 0  # type: ignore[arg-type]
        if data.count(b":") != n_keys:
            _refuse_duplicate_keys(data, path, usual)
    except msgspec.ValidationError as error:
        raise _wrong_value(error, data, path) from None
    except msgspec.DecodeError as error:
        reason = told(error)
        at = re.search(r" ?\(byte (\d+)\)", reason)
        if at is None:
            problem = f"not JSON: {reason} (after {len(data)} bytes)"
            raise ManifestError(problem, path=path) from None
        offset = int(at[1])
        problem = f"not JSON: {reason}; found {quoted(data[offset : offset + 20])}"
        raise ManifestError(problem, path=path, line=_line_at(data, offset)) from None
    except UnicodeDecodeError:
        raise ManifestError("expected UTF-8, found other bytes", path=path) from None
    except RecursionError:
        raise ManifestError("it is nested too deep", path=path) from None
    return value


def fields_in(data: bytes, *, path: str) -> dict[str, Any]:
    """Return all fields of a text that `decode` took for a struct, also those it does not know."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise _wrong_value(error, data, path) from None


@functools.cache
def _n_required(kind: type) -> int:
    return sum(field.required for field in msgspec.structs.fields(kind))


def _refuse_duplicate_keys(data: bytes, path: str, usual: type | None) -> None:
    if usual is not None:
        with contextlib.suppress(msgspec.ValidationError):  # then it is unusual
            if _keeps_all_keys(data, usual):
                return
    if _is_deep(data):
        raise RecursionError
    if _keeps_all_keys(data, Any):
        return

    def refuse(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                problem = f"the key {quoted(key)} stands twice in one object"
                raise ManifestError(problem, path=path, line=_line_of_second(key, data), field=key)
            seen.add(key)

    json.loads(data, object_pairs_hook=refuse, parse_int=_int)


def _is_deep(data: bytes) -> bool:
    """Whether anything in a text is nested too deep to be decoded without a description."""
    # Python's own limit is no answer to what is deep: in 3.11 the collector of garbage may begin
    # just as a decoder reaches it, and what listens to the collector (hypothesis) fails there.
    if data.count(b"[") + data.count(b"{") <= _MAX_DEPTH:
        return False
    steps = memoryview(_STRING.sub(b"", data).translate(_STEPS, _NO_BRACKETS)).cast("b")
    return max(itertools.accumulate(steps), default=0) > _MAX_DEPTH


def _keeps_all_keys(data: bytes, kind: Any) -> bool:
    """Whether a text surely has as many keys as what it is decoded to."""
    # Of a key that stands twice one is lost in decoding, with its quotation marks, and so is a
    # field that ``kind`` does not know. Without escapes nothing else changes their number.
    if b"\\" in data:
        return False
    again = msgspec.json.encode(msgspec.json.decode(data, type=kind))
    return again.count(b'"') == data.count(b'"')


def _line_of_second(key: str, data: bytes) -> int | None:
    """Return the line on which a flat object has ``key`` again; None if it is spelled otherwise."""
    # Of a long key neither, as a pattern takes a hundred times its length of memory.
    if len(key) > _MAX_SAID:
        return None
    spelled = re.compile(re.escape(json.dumps(key).encode()) + rb"\s*:")
    for flat in re.finditer(rb"\{[^{}]*\}", data):
        hits = [hit.start() for hit in spelled.finditer(data, *flat.span())]
        if len(hits) > 1:
            return _line_at(data, hits[1])
    return None


def _wrong_value(error: msgspec.ValidationError, data: bytes, path: str) -> ManifestError:
    # What is wrong may be a name of any length, of anything; where it is comes after it.
    *said, where = error.args[0].rsplit(" - at `", 1)
    field = where.rstrip("`") if said else ""
    line, found = _locate(field, data)
    problem = shown(said[0] if said else where, _MAX_SAID)
    problem = problem[:1].lower() + problem[1:] + (f", found {found}" if found else "")
    return ManifestError(problem, path=path, line=line, field=field or None)


def _locate(field: str, data: bytes) -> tuple[int | None, str | None]:
    """Return the line of the top-level item that ``field`` names, and the value there; or None."""
    steps = re.findall(r"\[(\d+)\]|\.(\w+)", field)
    if not steps or _is_deep(data):
        return None, None
    text, start, line = data.decode(errors="replace"), 0, None
    try:
        if steps[0][0]:
            start = _after_separator(text, text.index("[") + 1)
            for _ in range(int(steps.pop(0)[0])):
                start = _after_separator(text, _DECODER.raw_decode(text, start)[1])
            line = text.count("\n", 0, start) + 1
        elif len(data) > _MAX_SHOWN_BYTES:
            return None, None
        value, _ = _DECODER.raw_decode(text, start)
        for index, key in steps:
            value = value[int(index)] if index else value[key]
        return line, quoted(json.dumps(value))
    except (ValueError, LookupError, TypeError, RecursionError):  # of a caller that is deep itself
        return line, None


def _after_separator(text: str, position: int) -> int:
    between = re.compile(r"[\s,]*").match(text, position)
    return between.end() if between else position


def _line_at(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _int(digits: str) -> int | float:
    """Return an integer, for showing: Python refuses to read one of thousands of digits."""
    return int(digits) if len(digits) <= 20 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_int)
_MAX_DEPTH = 100
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_MAX_SHOWN_BYTES = 2**20
_MAX_SAID = 300  # characters of what msgspec says of a value

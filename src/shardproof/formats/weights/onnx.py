"""Models of ONNX: a message of protobuf, whose tensors may be in files beside it.

A tensor with data elsewhere says in which file, from which byte on, and how many there are
(https://onnx.ai/onnx/repo-docs/ExternalData.html). Of a model nothing is read but the fields that
lead to tensors: of graphs in graphs, of functions, of sparse tensors; the data in it are skipped.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from shardproof._base.messages import quoted, told
from shardproof._base.names import opened
from shardproof._base.opening import Read, file_of, matching
from shardproof.errors import ManifestNotFoundError
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch

_TENSOR: dict[int, Any] = {}
_SPARSE = {1: _TENSOR, 2: _TENSOR}
_GRAPH: dict[int, Any] = {5: _TENSOR, 15: _SPARSE}
_NODE = {5: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE}}
_GRAPH[1] = _NODE
_MODEL = {7: _GRAPH, 20: {1: _GRAPH, 2: _GRAPH}, 25: {7: _NODE}}
"""Which fields of a message are followed, by their numbers in onnx.proto."""

_REQUIRED = {1: "a version of ONNX", 7: "a graph", 8: "the versions of operators"}
_ENTRY, _PLACE, _ELSEWHERE = 13, 14, 1
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
_WINDOW_BYTES, _VARINT_BYTES = 2**16, 10
_MOST_FIELDS, _MOST_DEPTH, _MOST_TEXT = 2**22, 100, 4096
"""Of a model: a look at as many fields takes seconds; protobuf itself goes no deeper."""


def recognizes(path: str) -> bool:
    return bool(matching(path, "*.onnx"))


def read_manifest(path: str) -> Manifest:
    """Return the models, and the files in which their tensors are."""
    models, ends, damaged = matching(path, "*.onnx"), dict[str, int](), list[Contradiction]()
    if not models:
        raise ManifestNotFoundError("expected files (*.onnx), found none", path=path)
    for name in models:
        with opened(name, path) as file:
            if file is not None and file.status.st_size:
                wrong = _Model(file, file.status.st_size).look(ends)
                damaged += [Contradiction(name, *wrong)] if wrong else []
    files = [ExpectedFile(name=name) for name in dict.fromkeys([*models, *ends])]
    probe = functools.partial(_probe, ends)
    return Manifest.at(path, "", "onnx", files, probe=probe, damaged=damaged)


def _probe(ends: Mapping[str, int], file: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with a model, or that a file is too short for the tensors in it."""
    if file.name not in ends:
        return _Model(read, size).look({})
    expected = f"{ends[file.name]} bytes or more, for the tensors in it"
    return Mismatch(expected, f"{size} bytes") if size < ends[file.name] else None


class _ModelError(Exception):
    """Some bytes are not what they have to be in a model."""


class _Model:
    """A file with a model, which is read in pieces."""

    def __init__(self, read: Read, size: int) -> None:
        self._file = file_of(read, size, _WINDOW_BYTES)
        self._size, self._n_fields = size, 0

    def look(self, ends: dict[str, int]) -> Mismatch | None:
        """Put down where in which files tensors end; return what is wrong with the model."""
        try:
            numbers = {number for number, *_ in self._fields(0, self._size)}
            for tensor in self._tensors(0, self._size, _MODEL, 0):
                name = tensor.get("location", "").removeprefix("./")
                digits = [tensor.get(key, "0") for key in ("offset", "length")]
                if not name or not all(each.isascii() and each.isdigit() for each in digits):
                    raise _ModelError(f"a tensor in {quoted(name)}, {quoted(digits)}")
                ends[name] = max(ends.get(name, 0), sum(map(int, digits)))
        except _ModelError as error:
            return Mismatch("a model of ONNX", told(error))
        for number in _REQUIRED.keys() - numbers:
            return Mismatch(_REQUIRED[number], "none: the model is cut")
        return None

    def _tensors(
        self, begin: int, end: int, follow: Mapping[int, Any], depth: int
    ) -> Iterator[dict[str, str]]:
        """Yield what tensors with data elsewhere say of that."""
        if depth > _MOST_DEPTH:
            raise _ModelError(f"messages in messages, {depth} deep")
        for number, _, at, stop in self._fields(begin, end):
            inner = follow.get(number)
            if inner is _TENSOR:
                fields = [*self._fields(at, stop)]
                if any(field[:2] == (_PLACE, _ELSEWHERE) for field in fields):
                    entries = (field for field in fields if field[0] == _ENTRY)
                    yield dict(self._texts(begin, end) for _, _, begin, end in entries)
            elif inner is not None:
                yield from self._tensors(at, stop, inner, depth + 1)

    def _texts(self, begin: int, end: int) -> tuple[str, str]:
        texts = {
            number: self._at(at, min(stop - at, _MOST_TEXT)).decode(errors="replace")
            for number, _, at, stop in self._fields(begin, end)
        }
        return texts.get(1, ""), texts.get(2, "")

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the number of each field, its value if that is one, and where its bytes are."""
        while at < end and self._n_fields < _MOST_FIELDS:
            self._n_fields += 1
            begin, (tag, at) = at, self._varint(at)
            number, kind = tag >> 3, tag & 7
            value, behind = self._varint(at) if kind in {_VARINT, _BYTES} else (at, at)
            at = behind + (value if kind == _BYTES else _FIXED.get(kind, 0))
            if not number or kind not in {_VARINT, _BYTES, *_FIXED} or at > end:
                found = f"{quoted(self._at(begin, _VARINT_BYTES))} at byte {begin}"
                raise _ModelError(f"{found}, in what ends at byte {end}: it is cut, or no model")
            yield number, value, behind if kind == _BYTES else at, at

    def _varint(self, at: int) -> tuple[int, int]:
        number = 0
        for n, byte in enumerate(self._at(at, _VARINT_BYTES)):
            number |= (byte & 127) << 7 * n
            if byte < 128:
                return number, at + n + 1
        raise _ModelError(f"no number at byte {at}: it is cut")

    def _at(self, at: int, n_bytes: int) -> bytes:
        self._file.seek(at)
        return self._file.read(n_bytes)

"""Thrift's compact protocol, read with bounds: fields of structs, lists, integers.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Collection, Iterator

_TRUE, _FALSE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 8, 9, 10, 11, 12
_BYTES_OF = {_TRUE: 0, _FALSE: 0, 3: 1, 7: 8, 13: 16}  # truth values, bytes, doubles, UUIDs
_INTEGERS = {4, 5, 6}
_MOST_BITS = 70
_DEEPEST = 32


class ThriftError(Exception):
    """The text is none of this protocol."""


class CompactReader:
    """Reads a text on; it raises `ThriftError`, or `IndexError` where the text ends too early."""

    # The time of a look at a small file goes into this: its methods do much in one call.

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of a struct; its value is to be read or skipped."""
        text, field = self._text, 0
        while True:
            byte = text[self.at]
            self.at += 1
            if not byte:
                return
            field = field + (byte >> 4) if byte > 15 else self.integer()
            yield field, byte & 15

    def items(self) -> range:
        """Return the numbers of the items of a list, which are to be read."""
        return range(self._list_header()[0])

    def integer(self) -> int:
        """Return an integer, which is written in zigzag."""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def integers(self, wanted: Collection[int]) -> dict[int, int]:
        """Return those fields of a struct that are wanted, all integers, by their numbers."""
        found: dict[int, int] = {}
        for field, kind in self.fields():
            if field in wanted:
                found[field] = self.integer()
            else:
                self.skip(kind)
        return found

    def binary(self) -> bytes:
        """Return a text, or whatever bytes there are."""
        n_bytes = self._varint()
        self.at += n_bytes
        return self._text[self.at - n_bytes : self.at]

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value of a field."""
        if kind in _INTEGERS:
            text, at = self._text, self.at
            while text[at] > 127:
                at += 1
            self.at = at + 1
        elif kind == _BINARY:
            n_bytes = self._varint()  # which moves on by itself
            self.at += n_bytes
        elif kind == _STRUCT and depth < _DEEPEST:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in {_LIST, _SET} and depth < _DEEPEST:
            n_items, inner = self._list_header()
            for _ in range(n_items):
                self._skip_item(inner, depth + 1)
        elif kind == _MAP and depth < _DEEPEST:
            n_items = self._bounded(self._varint())
            kinds = self._text[self.at] if n_items else 0
            self.at += bool(n_items)
            for _ in range(n_items):
                self._skip_item(kinds >> 4, depth + 1)
                self._skip_item(kinds & 15, depth + 1)
        elif kind in _BYTES_OF:
            self.at += _BYTES_OF[kind]
        else:
            raise ThriftError(f"a field of kind {kind} at byte {self.at}, {depth} structs deep")

    def _skip_item(self, kind: int, depth: int) -> None:
        if kind in {_TRUE, _FALSE}:
            self.at += 1  # in a list, a truth value has a byte
        else:
            self.skip(kind, depth)

    def _list_header(self) -> tuple[int, int]:
        byte = self._text[self.at]
        self.at += 1
        n_items = byte >> 4
        return self._bounded(self._varint() if n_items == 15 else n_items), byte & 15

    def _bounded(self, n_items: int) -> int:
        if n_items > len(self._text) - self.at:  # each has a byte at least
            raise ThriftError(f"a list of {n_items} items at byte {self.at}")
        return n_items

    def _varint(self) -> int:
        text, at = self._text, self.at
        number, shift = text[at] & 127, 7
        while text[at] > 127:
            at += 1
            if shift > _MOST_BITS:
                raise ThriftError(f"an endless integer at byte {at}")
            number |= (text[at] & 127) << shift
            shift += 7
        self.at = at + 1
        return number

"""Footers and pages of parquet that say what can't be: told, with bounded work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import parquet
from tests.helpers.drawing import examples
from tests.probes.probing import asked

FILE = ExpectedFile(name="a.parquet")


def varint(number: int) -> bytes:
    head, rest = number & 127, number >> 7
    return bytes([head | 128]) + varint(rest) if rest else bytes([head])


def integer(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def group(n_rows: int, begin: int, n_bytes: int) -> bytes:
    """A row group of one column chunk: fields 1 and 3, in it 3, in that 7 and 9."""
    chunk = b"\x3c\x76" + integer(n_bytes) + b"\x26" + integer(begin) + b"\0\0"
    return b"\x19\x1c" + chunk + b"\x26" + integer(n_rows) + b"\0"


def footer(n_rows: int, *groups: bytes) -> bytes:
    lists = b"\x19" + bytes([len(groups) << 4 | 12])
    return b"\x36" + integer(n_rows) + lists + b"".join(groups) + b"\0"


def file_of(text: bytes, body: bytes = bytes(100)) -> bytes:
    return b"PAR1" + body + text + len(text).to_bytes(4, "little") + b"PAR1"


def probe(text: bytes) -> Mismatch | None:
    return asked(lambda read, size: parquet.probe(FILE, read, size), file_of(text))


ROWS = b"\x26\0\0"
"""Field 3 behind field 1, and the end."""


@pytest.mark.parametrize(
    "text",
    [
        footer(5, group(5, 4, 100)),
        footer(7, group(5, 4, 50), group(2, 54, 50)),
        footer(0, group(0, 999, -1)),  # of no rows nobody asks where they are
        b"\x1b\1\x88\1a\1b" + ROWS,
        b"\x1b\0" + ROWS,
        b"\x19\x21\1\2" + ROWS,
    ],
)
def test_what_can_be_is_sound(text: bytes) -> None:
    assert probe(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (footer(5, group(5, 3, 10)), "column chunks between bytes 4 and 104"),
        (footer(5, group(5, 5, 100)), "column chunks between bytes 4 and 104"),
        (footer(5, group(5, 4, -1)), "column chunks between bytes 4 and 104"),
        (footer(6, group(5, 4, 10)), "6 rows in row groups"),
        (b"\x36\0\x19\xfc" + varint(2**40), "a footer of parquet"),
        (b"\x36" + b"\xff" * 30, "a footer of parquet"),
        (b"\x1c" * 50, "a footer of parquet"),
        (b"\x1b\1\xbb" * 50, "a footer of parquet"),
        (b"\x1f", "a footer of parquet"),
    ],
)
def test_what_can_not_be_is_told(text: bytes, expected: str) -> None:
    found = probe(text)
    assert found is not None
    assert found.expected == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"\xff" * 100, "the header of a page at byte 4"),
        (b"\x35" + integer(200) + bytes(98), "a page within bytes 4 to 104"),
        (b"\x35" + integer(-1) + bytes(98), "a page within bytes 4 to 104"),
        (
            b"\x35" + integer(4) + b"\x15" + integer(1) + bytes(96),
            "a page with the CRC-32 00000001",
        ),
    ],
)
def test_a_page_that_can_not_be_is_told(page: bytes, expected: str) -> None:
    data = file_of(footer(5, group(5, 4, 100)), page.ljust(100, b"\0")[:100])
    found = asked(lambda read, size: parquet.prove(FILE, read, size), data)
    assert isinstance(found, Mismatch)
    assert found.expected == expected


@examples(300)
@given(st.binary(min_size=1, max_size=60))
def test_any_footer_has_an_answer(text: bytes) -> None:
    found = probe(text)
    assert found is None or len(found.expected + found.found) < 500

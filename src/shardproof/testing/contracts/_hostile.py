"""Hypothesis strategies for names, and for JSON, that every reader must refuse."""

import json
import re
import unicodedata
from collections.abc import Iterable

from hypothesis import strategies as st

from shardproof.testing.samples._layout import Layout

__all__ = ["hostile_json", "hostile_names", "twin_names"]

_NUMBER = re.compile(r"(?<![\w\".])\d+(\.\d+)?(?![\w\".])")
"""A whole number of a document: a part of one may be replaced by what makes another number."""


def hostile_names() -> st.SearchStrategy[str]:
    """Return a strategy for file names that no path may be made of.

    Absolute, with ``..`` or an empty part, with NUL, a backslash, a drive, a control character or a
    lone surrogate, or over 255 bytes: what leaves a directory, or names different files on
    different systems.

    Example:
        >>> from hypothesis import find
        >>> ".." in find(hostile_names(), lambda name: "/.." in name).split("/")
        True
    """
    plain = st.text("ab.é", min_size=1, max_size=5).filter(lambda text: text.strip(".") != "")
    inserted = st.sampled_from(["\0", "\\", "\n", "\x1b", "\x7f", "\u2028", "\ud800"])
    return st.one_of(
        st.sampled_from(["", ".", "..", "/", "C:", "C:\\", "\\\\host\\share", "/dev/stdin"]),
        plain.map(lambda name: f"../{name}"),
        plain.map(lambda name: f"/{name}"),
        st.builds("{}/../{}".format, plain, plain),
        st.builds("{}//{}".format, plain, plain),
        plain.map(lambda name: f"{name}/"),
        plain.map(lambda name: f"./{name}"),
        plain.map(lambda name: f"C:{name}"),
        st.builds("{}{}{}".format, plain, inserted, plain),
        st.integers(256, 5000).map(lambda length: "a" * length),
        st.integers(128, 300).map(lambda length: "é" * length),
    )


def twin_names() -> st.SearchStrategy[tuple[str, str]]:
    """Return a strategy for two names that are one file on some file systems.

    Equal, or equal after case folding or after the normal form NFC (Unicode Standard Annex 15).

    Example:
        >>> from hypothesis import find
        >>> len(find(twin_names(), lambda pair: pair[0] != pair[1]))
        2
    """
    names = st.text("aéß", min_size=1, max_size=5)
    return st.one_of(
        st.tuples(name := st.shared(names, key="twin"), name),
        names.map(lambda text: (text, text.swapcase())),
        names.filter(lambda text: "é" in text).map(
            lambda text: (text, unicodedata.normalize("NFD", text))
        ),
    )


def hostile_json(document: object = None) -> st.SearchStrategy[bytes]:
    """Return a strategy for what a file of JSON must not contain.

    Cut short, no JSON, not UTF-8, a member twice, ``NaN`` or ``Infinity``, a number beyond double
    precision, lone surrogates, nested without end (RFC 8259, sections 4, 6 and 8). Python's `json`
    accepts some of it.

    Args:
        document: What the file should contain: an object, or a list with one or more objects or
            numbers in it. By default saev's ``shards.json`` of two shards.

    Raises:
        ValueError: A document that no JSON can say.

    Example:
        >>> from hypothesis import find
        >>> find(hostile_json({"n": 1}), lambda text: b"NaN" in text)
        b'{"n": NaN}'
    """
    if document is None:
        document = json.loads(Layout(n_shards=2).read_bytes("shards.json"))
    text = json.dumps(document, allow_nan=False)
    # One number of the document becomes one that no reader should take.
    bad = st.sampled_from(["NaN", "Infinity", "-Infinity", "1e400", "-", "01", "1.", "0x1", "+1"])
    numbers = [match.span() for match in _NUMBER.finditer(text)]
    replaced = st.builds(
        lambda span, number: f"{text[: span[0]]}{number}{text[span[1] :]}".encode(),
        st.sampled_from(numbers),
        bad,
    )
    return st.one_of(
        st.integers(0, len(text) - 1).map(lambda end: text[:end].encode()),
        replaced if numbers else st.nothing(),
        st.sampled_from([*_repeated_members(text), *_not_json(text)]),
    )


def _repeated_members(text: str) -> Iterable[bytes]:
    """Put each simple member of an object twice: a reader takes the first, or the last."""
    for member in re.finditer(r'"[^"]*": ("[^"]*"|[\d.]+|true|false|null)', text):
        yield f"{text[: member.end()]}, {member[0]}{text[member.end() :]}".encode()


def _not_json(text: str) -> Iterable[bytes]:
    yield b"\0" * len(text)  # what a power cut may leave of a file
    yield text.encode() + b"]"
    yield text.encode() * 2
    yield text.encode("utf-16")
    yield text.encode("utf-32")
    yield b"\xff" + text.encode()
    yield text.replace('"', "'").encode()
    yield b"[" * 100_000
    yield b'{"a":' * 100_000
    yield b"[" * 100_000 + b"]" * 100_000
    for end in re.finditer(r'(?<=\w)"', text):
        yield (text[: end.start()] + "\\ud800" + text[end.start() :]).encode()
        yield text[: end.start()].encode() + b"\xed\xa0\x80" + text[end.start() :].encode()

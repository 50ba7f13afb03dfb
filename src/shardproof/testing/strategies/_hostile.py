"""Hypothesis strategies for names, JSON and manifests that every reader must refuse."""

import copy
import json
import re
import unicodedata
from typing import Any

from hypothesis import strategies as st

from shardproof.testing.samples._layout import Layout, SampleFormat, sample_format
from shardproof.testing.samples.receipts import receipt_bytes

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
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
    # Those within texts are parts of names, and another one would do.
    without_texts = _TEXT.sub(lambda found: "x" * len(found[0]), text)
    numbers = [match.span() for match in _NUMBER.finditer(without_texts)]
    replaced = st.builds(
        lambda span, number: f"{text[: span[0]]}{number}{text[span[1] :]}".encode(),
        st.sampled_from(numbers),
        bad,
    )
    # A member twice: a reader takes the first, or the last.
    repeated = [
        f"{text[: member.end()]}, {member[0]}{text[member.end() :]}".encode()
        for member in re.finditer(r'"[^"]*": ("[^"]*"|[\d.]+|true|false|null)', text)
    ]
    not_json = [
        b"\0" * len(text),  # what a power cut may leave of a file
        text.encode() + b"]",
        text.encode() * 2,
        text.encode("utf-16"),
        text.encode("utf-32"),
        b"\xff" + text.encode(),
        text.replace('"', "'").encode(),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ]
    for end in re.finditer(r'(?<=\w)"', text):
        before, after = text[: end.start()].encode(), text[end.start() :].encode()
        not_json += [before + b"\\ud800" + after, before + b"\xed\xa0\x80" + after]
    return st.one_of(
        st.integers(0, len(text) - 1).map(lambda end: text[:end].encode()),
        replaced if numbers else st.nothing(),
        st.sampled_from([*repeated, *not_json]),
    )


def hostile_manifests(
    layout: Layout | str | SampleFormat = "saev", *, index: int = 0
) -> st.SearchStrategy[bytes]:
    """Return a strategy for manifests that no reader of a format may believe, whatever lies there.

    They are no JSON, or not quite (`hostile_json`); or one field has the wrong type or a value that
    the format's laws forbid; or a shard has a name that no path may be made of (`hostile_names`),
    some of which lead to the very file that was meant.

    - Of saev it is ``shards.json``, which a right reader refuses.
    - Of receipts it is that of one shard, which a right reader takes for left to do; it raises
      nothing.

    Args:
        layout: What they lie about, or a format; by default the smallest that will do.
        index: Of receipts, the shard, which must be whole in the layout.

    Raises:
        ValueError: Another format, for which `hostile_json` is meant; a shard that is not
            whole.

    Example:
        >>> from hypothesis import find
        >>> find(hostile_manifests("receipts"), lambda text: len(text) < 9)
        b''
    """
    form = layout.format if isinstance(layout, Layout) else sample_format(layout)
    if form.name not in _HOSTILE:
        known = ", ".join(_HOSTILE)
        raise ValueError(f"layout: expected one of {known}, found {form}; use hostile_json")
    if not isinstance(layout, Layout):
        layout = Layout(1, format=form)
    return _HOSTILE[form.name](layout, index)


def _hostile_shards(layout: Layout, _index: int) -> st.SearchStrategy[bytes]:
    entries = json.loads(layout.read_bytes("shards.json"))
    names = hostile_names().map(
        lambda name: json.dumps([*entries, {"name": name, "n_examples": 4}]).encode()
    )
    return st.one_of(hostile_json(entries), names)


def _hostile_receipts(layout: Layout, index: int) -> st.SearchStrategy[bytes]:
    if layout.states[index] != "ok":
        raise ValueError(f"shard {index}: expected ok, found {layout.states[index]}")
    receipt = json.loads(receipt_bytes(layout, index) or b"")
    files, name, plan_hash = receipt["files"], layout.bin_name(index), layout.plan_hash
    # Lists of one of the two outputs, which is whole: twice, or without the other.
    halves = [{kind: file} for kind, file in files.items()]
    halves += [dict.fromkeys(files, file) for file in files.values()]
    # Fields that every reader must go by, and what else than wrong types may not be there.
    wrong: dict[_Field, tuple[object, ...]] = {
        ("status",): (0, "", "Completed", "completed ", "started", "failed", "unknown"),
        ("plan_hash",): (0, "", plan_hash[:-1], plan_hash + " ", f"0x{plan_hash}"),
        ("shard_index",): (str(index), -1, index + 1, 10**30, 2**64 + index),
        ("schema_version",): (0, 2, 99, -1, "1"),
        ("files",): ("bin", 0, [{"path": name, "bytes": 96}], *halves),
        ("files", "bin"): (name, 0, [name]),
        _PATH: (0, f"../{plan_hash}/{name}", f"receipts/../{name}", f"./{name}", f".//{name}"),
    }
    lies = [{field: lie} for field, some in wrong.items() for lie in (*_WRONG_TYPES, *some)]
    # None means that no size was recorded, and a wrong size is not wrong at every level.
    lies += [{("files", "bin", "bytes"): lie} for lie in (*_WRONG_TYPES[1:], "96", -1)]
    # Equal to 0 in Python, or not more than it: still not the number 0.
    not_zero: tuple[object, ...] = (None, False, 0.5, "0", [], -1)
    lies += [{("files",): {}, ("stats", "num_sequences"): lie} for lie in not_zero]
    texts = [_told(receipt, lie) for lie in lies]
    names = hostile_names().map(lambda name: _told(receipt, {_PATH: name}))
    # Three times: one_of() counts each strategy, but the same one only once.
    often = (st.sampled_from(texts) for _ in range(3))
    return st.one_of(hostile_json(receipt), *often, names)


_Field = tuple[str, ...]
_PATH = ("files", "bin", "path")
_WRONG_TYPES: tuple[object, ...] = (None, True, False, 1.5, [], ["completed"], {}, {"a": {}})


def _told(receipt: dict[str, Any], lie: dict[_Field, object]) -> bytes:
    """Return the receipt with other values in some fields."""
    told = copy.deepcopy(receipt)
    for (*parents, last), value in lie.items():
        inner = told
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    return json.dumps(told).encode()


_HOSTILE = {"saev": _hostile_shards, "receipts": _hostile_receipts}

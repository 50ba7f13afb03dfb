"""Hypothesis strategies for shards directories, whole and damaged, and for hostile manifests.

Needs hypothesis (``pip install shardproof[testing]``). With it installed, ``st.from_type(Layout)``
finds `layouts` by itself.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any, TypeVar

from hypothesis import strategies as st

from shardproof.testing._content import manifest_files
from shardproof.testing._damage import Damage, DamageKind
from shardproof.testing._layout import Layout, layout
from shardproof.testing._states import ShardState

__all__ = [
    "damages",
    "hostile_json",
    "hostile_names",
    "layouts",
    "manifests",
    "shard_states",
    "twins",
]

E = TypeVar("E", bound=StrEnum)


def shard_states(
    states: Collection[str] = tuple(ShardState),
) -> st.SearchStrategy[ShardState]:
    """Return a strategy for what became of one shard; shrinks to `ShardState.OK`.

    Args:
        states: Those to choose from.

    Raises:
        ValueError: None, or something that is no state.

    Example:
        >>> from hypothesis import find
        >>> find(shard_states(["fifo", "ok"]), lambda state: True)
        <ShardState.OK: 'ok'>
    """
    return st.sampled_from(_chosen("states", states, ShardState))


def _chosen(name: str, values: Collection[str], kind: type[E]) -> list[E]:
    """Return members of an enumeration in its own order, which strategies shrink along."""
    chosen = {kind(value) for value in values}
    if not chosen:
        raise ValueError(f"{name}: expected one or more, found none")
    return [member for member in kind if member in chosen]


def layouts(
    *,
    min_shards: int = 0,
    max_shards: int = 8,
    states: Collection[str] = tuple(ShardState),
    shapes: bool = True,
) -> st.SearchStrategy[Layout]:
    """Return a strategy for shards directories, from whole ones to ruins.

    About a third of them are whole: a validator that cries wolf is as wrong as a blind one. It
    shrinks to few shards, to whole shards, to the default shape: a bug that one shard shows shrinks
    to a directory of one shard.

    Args:
        min_shards: Least number of shards.
        max_shards: Largest number of shards.
        states: What may become of a shard; `ShardState.OK` is always among them. Leave out what
            your format can't notice, or your file system can't make.
        shapes: Whether sizes and labels vary too; otherwise they are those of ``layout()``.

    Raises:
        TypeError: A number of shards that is no integer.
        ValueError: A number of shards below 0, or the least above the largest; something that is no
            state.

    Example:
        >>> from hypothesis import find
        >>> find(layouts(), lambda value: "fifo" in value.states)
        layout(n_shards=1, fifo=[0])
    """
    for name, count in (("min_shards", min_shards), ("max_shards", max_shards)):
        if type(count) is not int:
            raise TypeError(f"{name}: expected int, found {count!r}")
    if not 0 <= min_shards <= max_shards:
        found = f"min_shards={min_shards}, max_shards={max_shards}"
        raise ValueError(f"expected 0 <= min_shards <= max_shards, found {found}")
    one, sizes = shard_states([ShardState.OK, *states]), st.integers(min_shards, max_shards)
    whole = sizes.map(lambda n: [ShardState.OK] * n)
    ruins = st.lists(one, min_size=min_shards, max_size=max_shards)
    # Many shards with the same thing wrong, for code that gives up after the second.
    alike = st.tuples(sizes, one).flatmap(_alike)
    shape = _shapes() if shapes else st.just({})
    return _layouts(st.one_of(whole, ruins, alike, alike), shape)


def _alike(drawn: tuple[int, ShardState]) -> st.SearchStrategy[list[ShardState]]:
    n, state = drawn
    return st.lists(st.sampled_from([ShardState.OK, state, state]), min_size=n, max_size=n)


@st.composite  # not builds(), which would print its own call instead of the layout's
def _layouts(
    draw: st.DrawFn,
    all_states: st.SearchStrategy[list[ShardState]],
    shapes: st.SearchStrategy[dict[str, Any]],
) -> Layout:
    states, shape = draw(all_states), draw(shapes)
    if states.count(ShardState.SWAPPED) == 1:  # with whom?
        states[states.index(ShardState.SWAPPED)] = ShardState.OK
    named: dict[str, Any] = {
        state: [index for index, found in enumerate(states) if found is state]
        for state in set(states) - {ShardState.OK}
    }
    shape = shape | {"labels": bool(shape.get("labels") and states)}
    return layout(len(states), **named, **shape)


def _shapes() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "examples_per_shard": st.integers(1, 4),
            "layers": st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True),
            "content_tokens_per_example": st.integers(1, 4),
            "cls_token": st.booleans(),
            "d_model": st.integers(1, 9),
            "labels": st.booleans(),
        },
    )


def damages(
    kinds: Collection[str] = tuple(DamageKind),
) -> st.SearchStrategy[Damage]:
    """Return a strategy for damage to one file: ``with damaged(path, *drawn)``.

    Args:
        kinds: Those to choose from.

    Raises:
        ValueError: None, or something that is no kind.

    Example:
        >>> from hypothesis import find
        >>> find(damages(["drop", "grow"]), lambda damage: damage.seed >= 2)
        Damage(kind=<DamageKind.GROW: 'grow'>, seed=2)
    """
    chosen = st.sampled_from(_chosen("kinds", kinds, DamageKind))
    return st.builds(Damage, kind=chosen, seed=st.integers(0, 2**32 - 1))


def manifests(
    values: st.SearchStrategy[Layout] | None = None,
) -> st.SearchStrategy[dict[str, bytes]]:
    """Return a strategy for the manifest files of saev, by name, spelled in every permitted way.

    Whoever reads JSON must accept them: objects in any order, any white space, escapes or not.

    Args:
        values: What is promised; by default any of `layouts`.

    Example:
        >>> from hypothesis import find
        >>> sorted(find(manifests(), lambda files: b"acts000001.bin" in files["shards.json"]))
        ['metadata.json', 'shards.json']
    """
    return st.builds(_spelled, layouts() if values is None else values, st.randoms(), _spellings())


def _spellings() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "indent": st.sampled_from([None, 0, 2, "\t"]),
            "ensure_ascii": st.booleans(),
            "separators": st.sampled_from([(",", ":"), (" , ", " : "), (",\r\n", ":\t")]),
        }
    )


def _spelled(value: Layout, random: Any, spelling: dict[str, Any]) -> dict[str, bytes]:
    return {
        name: json.dumps(_reordered(json.loads(content), random), **spelling).encode()
        for name, content in manifest_files(value).items()
    }


def _reordered(value: Any, random: Any) -> Any:
    if isinstance(value, list):
        return [_reordered(item, random) for item in value]
    if isinstance(value, dict):
        return {key: value[key] for key in random.sample(sorted(value), len(value))}
    return value


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


def twins() -> st.SearchStrategy[tuple[str, str]]:
    """Return a strategy for two names that are one file on some file systems.

    Equal, or equal after case folding or after the normal form NFC (Unicode Standard Annex 15).

    Example:
        >>> from hypothesis import find
        >>> len(find(twins(), lambda pair: pair[0] != pair[1]))
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
        document = json.loads(manifest_files(layout(n_shards=2))["shards.json"])
    text = json.dumps(document, allow_nan=False)
    return st.one_of(
        st.integers(0, len(text) - 1).map(lambda end: text[:end].encode()),
        _replaced_numbers(text),
        st.sampled_from([*_repeated_members(text), *_not_json(text)]),
    )


def _replaced_numbers(text: str) -> st.SearchStrategy[bytes]:
    """One number of the document becomes one that no reader should take."""
    numbers = [match.span() for match in re.finditer(r"(?<![\w\"])\d+(?![\w\"])", text)]
    bad = st.sampled_from(["NaN", "Infinity", "-Infinity", "1e400", "-", "01", "1.", "0x1", "+1"])
    if not numbers:
        return st.nothing()
    return st.builds(
        lambda span, number: f"{text[: span[0]]}{number}{text[span[1] :]}".encode(),
        st.sampled_from(numbers),
        bad,
    )


def _repeated_members(text: str) -> Iterable[bytes]:
    """Each simple member of an object stands twice: whoever reads takes the first or the last."""
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

"""Hypothesis strategies for sample directories of every format: whole, damaged, hostile.

Needs hypothesis (``pip install 'shardproof[testing]'``). With it installed, `layouts` is found by
``st.from_type(Layout)``.
"""

import itertools
import json
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from shardproof.testing._extras import extra

with extra():
    from hypothesis import strategies as st

    from shardproof.testing.contracts import _checkpoint_strategies, _receipt_strategies
    from shardproof.testing.contracts._checkpoint_strategies import checkpoint_tensors
    from shardproof.testing.contracts._hostile import hostile_json, hostile_names, twin_names
    from shardproof.testing.faults import Damage, DamageKind
    from shardproof.testing.samples._layout import Layout, SampleFormat, sample_format

__all__ = [
    "checkpoint_tensors",
    "damages",
    "hostile_json",
    "hostile_manifests",
    "hostile_names",
    "layouts",
    "manifests",
    "shard_states",
    "twin_names",
]

E = TypeVar("E", bound=StrEnum)


def _chosen(name: str, values: Collection[str], kind: type[E]) -> list[E]:
    """Members of an enumeration in its own order, which strategies shrink along."""
    found = {kind(value) for value in values}
    if not found:
        raise ValueError(f"{name}: expected one or more, found none")
    return [member for member in kind if member in found]


def shard_states(
    states: Collection[str] | None = None,
    *,
    format: str | SampleFormat = "saev",  # noqa: A002 - the one word for it
) -> st.SearchStrategy[Any]:
    """Return a strategy for what became of one shard; shrinks to that of a whole one.

    Args:
        states: Those to choose from; by default all that the format has.
        format: Whose states.

    Raises:
        ValueError: None, or something that is no state.

    Example:
        >>> from hypothesis import find
        >>> find(shard_states(["fifo", "ok"]), lambda state: True)
        <ShardState.OK: 'ok'>
    """
    kind = sample_format(format).states
    return st.sampled_from(_chosen("states", [*kind] if states is None else states, kind))


def layouts(
    formats: Collection[str | SampleFormat] = ("saev",),
    *,
    min_shards: int = 0,
    max_shards: int = 8,
    states: Collection[str] | None = None,
    shapes: bool = True,
    **options: st.SearchStrategy[Any] | Callable[[int], st.SearchStrategy[Any]],
) -> st.SearchStrategy[Layout]:
    """Return a strategy for sample directories of some formats, from whole ones to ruins.

    About a third of them are whole: a validator that cries wolf is as wrong as a blind one. It
    shrinks to few shards, to whole shards, to the default shape: a bug that one shard shows shrinks
    to a directory of one shard. About one in four has ``missing``, ``empty``,
    ``unreadable`` and ``directory`` shards at once, as far as the format has these states; of
    receipts, fewer.

    **A loader that opens what is no file waits for ever:** the named pipe of a ``fifo`` has no
    writer. Call it inside `shardproof.testing.time_limit`, which turns that into an error, or
    leave the state out.

    Args:
        formats: Which; the first is the simplest.
        min_shards: Least number of shards, or the format's, which may be 1.
        max_shards: Largest number of shards.
        states: What may become of a shard; ``ok`` is always among them. By default whatever the
            format has. Leave out what your format can't notice, or your file system can't make.
        shapes: Whether options vary too; otherwise they are those of ``Layout()``.
        **options: Strategies for single options, in the place of the format's own, such as
            ``metadata=st.just("ok")`` of checkpoints; or functions that return one for a number of
            shards, such as ``tensors=checkpoint_tensors``.

    Raises:
        TypeError: A number of shards that is no integer.
        ValueError: A number of shards below 0, or the least above the largest; no format, or
            something that is no state or no format.

    Example:
        >>> from hypothesis import find
        >>> find(layouts(), lambda layout: "fifo" in layout.states)
        Layout(n_shards=1, fifo=[0])
    """
    for name, count in (("min_shards", min_shards), ("max_shards", max_shards)):
        if type(count) is not int:
            raise TypeError(f"{name}: expected int, found {count!r}")
    if not 0 <= min_shards <= max_shards:
        found = f"min_shards={min_shards}, max_shards={max_shards}"
        raise ValueError(f"expected 0 <= min_shards <= max_shards, found {found}")
    if not formats:
        raise ValueError("formats: expected one or more, found none")
    found_forms = [sample_format(each) for each in formats]
    for form in found_forms:
        if max_shards < (least := form.options.least_shards):
            raise ValueError(f"max_shards: expected {least} or more, found {max_shards}")
    return st.one_of(
        [
            _layouts(
                form,
                _states(form, max(min_shards, form.options.least_shards), max_shards, states),
                _OPTIONS.get(form.name, _no_options) if shapes else _no_options,
                options,
            )
            for form in found_forms
        ]
    )


def _states(
    form: SampleFormat, min_shards: int, max_shards: int, states: Collection[str] | None
) -> st.SearchStrategy[list[StrEnum]]:
    known = [*form.states] if states is None else states
    ok = next(iter(form.states))
    one, sizes = shard_states([ok, *known], format=form), st.integers(min_shards, max_shards)
    common = [state for state in form.states if state in _COMMON and state in known]
    whole = sizes.map(lambda n: [ok] * n)
    ruins = st.lists(one, min_size=min_shards, max_size=max_shards)
    # Many shards with the same thing wrong, for code that gives up after the second.
    alike = st.tuples(sizes, one).flatmap(
        lambda drawn: st.lists(
            st.sampled_from([ok, drawn[1], drawn[1]]), min_size=drawn[0], max_size=drawn[0]
        )
    )
    # All that is common wrong at once, for code that looks for one thing after the other.
    others = st.lists(one, max_size=max_shards)
    mixed = _together(common, others, ok, min_shards, max_shards)
    # Those named more often come more often, which one_of() does not do.
    often = [ruins, whole, alike, mixed, whole, mixed, mixed, whole]
    if form.name == "receipts":  # which have the most states, and each of them should come up
        often = [ruins, whole, alike, ruins, ruins, mixed, ruins, whole]
    return st.sampled_from(often).flatmap(lambda strategy: strategy)


_COMMON = ("missing", "empty", "unreadable", "directory")


def _together(
    common: list[StrEnum],
    others: st.SearchStrategy[list[StrEnum]],
    ok: StrEnum,
    at_least: int,
    at_most: int,
) -> st.SearchStrategy[list[StrEnum]]:
    """Mostly all that is common, then others, turned round; each goes by itself in shrinking."""
    also = st.tuples(*(st.sampled_from([[], [ok], *[[state]] * 9]) for state in common))
    places = {state: place for place, state in enumerate(type(ok))}

    def fitted(
        drawn: tuple[tuple[list[StrEnum], ...], list[StrEnum], int],
    ) -> list[StrEnum]:
        some, more, turn = drawn
        states = [*itertools.chain(*some), *more][:at_most]
        states += [ok] * (at_least - len(states))
        if not turn:  # one order for equal states, so that they shrink to one layout
            return sorted(states, key=lambda state: (state is ok, places[state]))
        turn %= len(states) or 1
        return states[turn:] + states[:turn]

    return st.tuples(also, others, st.integers(0, 7)).map(fitted)


@st.composite  # not builds(), which would print its own call instead of the layout's
def _layouts(
    draw: st.DrawFn,
    form: SampleFormat,
    all_states: st.SearchStrategy[list[StrEnum]],
    shape: Callable[[int], st.SearchStrategy[dict[str, Any]]],
    options: dict[str, st.SearchStrategy[Any] | Callable[[int], st.SearchStrategy[Any]]],
) -> Layout:
    states: list[str] = [*draw(all_states)]
    said = draw(shape(len(states)))
    for name, each in options.items():
        said[name] = draw(each if isinstance(each, st.SearchStrategy) else each(len(states)))
    if form.name == "checkpoint":
        _checkpoint_strategies.make_possible(states, said)
    if states.count("swapped") == 1:  # with whom?
        states[states.index("swapped")] = next(iter(form.states))
    return Layout.of(states, format=form, **said)


def _no_options(_n_shards: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.just({})


def _saev_options(n_shards: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "examples_per_shard": st.integers(1, 4),
            "layers": st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True),
            "content_tokens_per_example": st.integers(1, 4),
            "cls_token": st.booleans(),
            "d_model": st.integers(1, 9),
            "labels": st.booleans() if n_shards else st.just(False),
        },
    )


_OPTIONS = {
    "saev": _saev_options,
    "receipts": lambda _: st.fixed_dictionaries({"seed": st.integers(0, 3)}),
    "checkpoint": _checkpoint_strategies.options,
}
"""The shapes of a format's directories, by how many shards they have."""


def hostile_manifests(
    layout: Layout | str | SampleFormat = "saev", *, index: int = 0
) -> st.SearchStrategy[bytes]:
    """Return a strategy for manifests that no reader of a format may believe, whatever lies there.

    They are no JSON, or not quite (`hostile_json`); or one field has the wrong type or a value that
    the format's laws forbid; or a shard has a name that no path may be made of (`hostile_names`),
    some of which lead to the very file that was meant.

    - Of saev it is ``shards.json``, which a right reader refuses.
    - Of receipts it is the receipt of one shard, which a right reader takes for a shard that is
      left to do; it raises nothing.
    - Of checkpoints it is the metadata file, which a right reader refuses, and raises nothing else.
      Most have their own right checksum: only the law that is broken can tell.

    Args:
        layout: What they lie about, or a format; by default the smallest that will do.
        index: Of receipts, the shard, which must be whole in the layout.

    Raises:
        ValueError: A format of your own, for which `hostile_json` is meant; a shard that is not
            whole; a checkpoint whose first rank has no two tensors, the first of them with data.

    Example:
        >>> from hypothesis import find
        >>> find(hostile_manifests("checkpoint"), lambda text: len(text) < 9)
        b''
    """
    form = layout.format if isinstance(layout, Layout) else sample_format(layout)
    if form.name not in _HOSTILE:
        raise ValueError(f"layout: expected a format of the kit, found {form}; use hostile_json")
    if not isinstance(layout, Layout):
        layout = Layout(3 if form.name == "checkpoint" else 1, format=form)
    return _HOSTILE[form.name](layout, index)


def _hostile_shards(layout: Layout, _index: int) -> st.SearchStrategy[bytes]:
    entries = json.loads(layout.read_bytes("shards.json"))
    names = hostile_names().map(
        lambda name: json.dumps([*entries, {"name": name, "n_examples": 4}]).encode()
    )
    return st.one_of(hostile_json(entries), names)


_HOSTILE = {
    "saev": _hostile_shards,
    "receipts": _receipt_strategies.hostile_receipts,
    "checkpoint": _checkpoint_strategies.hostile_metadata,
}


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
        >>> find(damages(["missing", "extended"]), lambda damage: damage.seed >= 2)
        Damage(kind=<DamageKind.EXTENDED: 'extended'>, seed=2)
    """
    kind = st.sampled_from(_chosen("kinds", kinds, DamageKind))
    return st.builds(Damage, kind=kind, seed=st.integers(0, 2**32 - 1))


def manifests(
    layouts_of: st.SearchStrategy[Layout] | None = None,
) -> st.SearchStrategy[dict[str, bytes]]:
    """Return a strategy for the manifest files of saev, by name, spelled in every permitted way.

    Every reader of JSON must accept them: objects in any order, any white space, escapes or not.

    Args:
        layouts_of: What is promised; by default any of `layouts`.

    Example:
        >>> from hypothesis import find
        >>> sorted(find(manifests(), lambda files: b"acts000001.bin" in files["shards.json"]))
        ['metadata.json', 'shards.json']
    """
    spellings = st.fixed_dictionaries(
        {
            "indent": st.sampled_from([None, 0, 2, "\t"]),
            "ensure_ascii": st.booleans(),
            "separators": st.sampled_from([(",", ":"), (" , ", " : "), (",\r\n", ":\t")]),
        }
    )
    promised = layouts() if layouts_of is None else layouts_of
    return st.builds(_spelled, promised, st.randoms(), spellings)


def _spelled(layout: Layout, random: Any, spelling: dict[str, Any]) -> dict[str, bytes]:
    return {
        name: json.dumps(
            _reordered(json.loads(layout.read_bytes(name)), random), **spelling
        ).encode()
        for name in layout.manifest_names
    }


def _reordered(value: Any, random: Any) -> Any:
    if isinstance(value, list):
        return [_reordered(item, random) for item in value]
    if isinstance(value, dict):
        return {key: value[key] for key in random.sample(sorted(value), len(value))}
    return value

"""Hypothesis strategies for sample directories of every format: whole, damaged, hostile.

Needs hypothesis (``pip install 'shardproof[testing]'``). With it installed, `layouts` is found by
``st.from_type(Layout)``.
"""

import itertools
import json
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from shardproof._base.imports import extra

with extra():
    from hypothesis import strategies as st

    from shardproof.testing.faults import Damage, DamageKind
    from shardproof.testing.samples._keywords import integer, one_of
    from shardproof.testing.samples._layout import Layout, SampleFormat, sample_format
    from shardproof.testing.samples.checkpoint import CheckpointMetadataState, CheckpointShardState
    from shardproof.testing.samples.checkpoint._content import (
        ITEM_SIZES,
        as_tensor,
        can_be,
        rank_lied_about,
    )
    from shardproof.testing.strategies._hostile import (
        hostile_json,
        hostile_manifests,
        hostile_names,
        twin_names,
    )

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
    found = {one_of(name, value, kind) for value in values}
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

    About a third of them are whole. They shrink to few shards, to whole ones, to the default shape.
    About one in four, of receipts fewer, has ``missing``, ``empty``, ``unreadable`` and
    ``directory`` shards at once, if the format does.

    Args:
        formats: Which; the first is the simplest.
        min_shards: Least number of shards, or the format's, which may be 1.
        max_shards: Largest number of shards.
        states: What may become of a shard; ``ok`` is always among them. By default whatever the
            format has but ``fifo``, at which a loader may wait for ever: `time_limit` ends that.
            ``[*ShardState]`` is all. Leave out what your format can't notice, or your file system
            can't make.
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
        >>> find(layouts(), lambda layout: "socket" in layout.states)
        Layout(n_shards=1, socket=[0])
    """
    min_shards = integer("min_shards", min_shards)
    max_shards = integer("max_shards", max_shards)
    if not 0 <= min_shards <= max_shards:
        found = f"min_shards={min_shards}, max_shards={max_shards}"
        raise ValueError(f"expected 0 <= min_shards <= max_shards, found {found}")
    if not formats:
        raise ValueError("formats: expected one or more, found none")
    strategies = []
    for form in map(sample_format, formats):
        if max_shards < (least := form.options.least_shards):
            raise ValueError(f"max_shards: expected {least} or more, found {max_shards}")
        all_states = _states(form, max(min_shards, least), max_shards, states)
        shape = _OPTIONS.get(form.name, lambda _: _SEED_ALONE) if shapes else None
        strategies.append(_layouts(form, all_states, shape, options))
    return st.one_of(strategies)


def _states(
    form: SampleFormat, min_shards: int, max_shards: int, states: Collection[str] | None
) -> st.SearchStrategy[list[StrEnum]]:
    known = [state for state in form.states if state != "fifo"] if states is None else states
    ok = next(iter(form.states))
    one, sizes = shard_states([ok, *known], format=form), st.integers(min_shards, max_shards)
    whole = sizes.map(lambda n: [ok] * n)
    ruins = st.lists(one, min_size=min_shards, max_size=max_shards)
    # Many shards with the same thing wrong, for code that gives up after the second. Those in front
    # are cut off: what is wrong shrinks to the end, and so the number of shards does by itself.
    marks = st.lists(st.sampled_from([False, True, True]), min_size=max_shards, max_size=max_shards)
    alike = st.tuples(sizes, one, marks).map(
        lambda drawn: [
            drawn[1] if is_alike else ok for is_alike in drawn[2][max_shards - drawn[0] :]
        ]
    )
    # Mostly all that is common wrong at once, then others, turned round: for code that looks for
    # one thing after the other. Each goes by itself in shrinking.
    common = [state for state in form.states if state in _COMMON and state in known]
    also = st.tuples(*(st.sampled_from([[], [ok], *[[state]] * 9]) for state in common))
    places = {state: place for place, state in enumerate(form.states)}

    def fitted(drawn: tuple[tuple[list[StrEnum], ...], list[StrEnum], int]) -> list[StrEnum]:
        some, more, turn = drawn
        states = [*itertools.chain(*some), *more][:max_shards]
        states += [ok] * (min_shards - len(states))
        if not turn:  # one order for equal states, so that they shrink to one layout
            return sorted(states, key=lambda state: (state is ok, places[state]))
        turn %= len(states) or 1
        return states[turn:] + states[:turn]

    mixed = st.tuples(also, st.lists(one, max_size=max_shards), st.integers(0, 7)).map(fitted)
    # Those named more often come more often, which one_of() does not do. The first takes the fewest
    # choices: hypothesis would end at a shorter one that it meets by chance after shrinking.
    often = [whole, ruins, alike, mixed, whole, mixed, mixed, whole]
    if form.name == "receipts":  # which have the most states, and each of them should come up
        often = [whole, ruins, alike, ruins, ruins, mixed, ruins, whole]
    return st.sampled_from(often).flatmap(lambda strategy: strategy)


_COMMON = {"missing", "empty", "unreadable", "directory"}


@st.composite  # not builds(), which would print its own call instead of the layout's
def _layouts(
    draw: st.DrawFn,
    form: SampleFormat,
    all_states: st.SearchStrategy[list[StrEnum]],
    shape: Callable[[int], st.SearchStrategy[dict[str, Any]]] | None,
    options: dict[str, st.SearchStrategy[Any] | Callable[[int], st.SearchStrategy[Any]]],
) -> Layout:
    states: list[str] = [*draw(all_states)]
    said = draw(shape(len(states))) if shape else {}
    for name, each in options.items():
        said[name] = draw(each if isinstance(each, st.SearchStrategy) else each(len(states)))
    if form.name == "checkpoint":
        _make_possible(states, said)
    if states.count("swapped") == 1:  # with whom?
        states[states.index("swapped")] = next(iter(form.states))
    if states and not form.can_be(states):
        states[-1] = next(iter(form.states))
    return Layout.of(states, format=form, **said)


def _make_possible(states: list[str], said: dict[str, Any]) -> None:
    """Replace states that these tensors can't be in by whole ones."""
    given = said.get("tensors")
    if given is None:
        given = Layout(len(states), format="checkpoint").tensors
    made = [[as_tensor(each) for each in some] for some in given]
    for rank, (state, some) in enumerate(zip(states, made, strict=True)):
        if not can_be(state, some):
            states[rank] = CheckpointShardState.OK
    if rank_lied_about(CheckpointMetadataState(said.get("metadata", "ok")), made) is None:
        said["metadata"] = CheckpointMetadataState.OK


_SEEDS = st.integers(0, 3)
_SEED_ALONE = st.fixed_dictionaries({"seed": _SEEDS})


def _checkpoint_options(n_shards: int) -> st.SearchStrategy[dict[str, Any]]:
    # In most the metadata file is whole.
    ok, every = st.just(CheckpointMetadataState.OK), st.sampled_from(CheckpointMetadataState)
    metadata = st.sampled_from([ok, ok, ok, every, every]).flatmap(lambda strategy: strategy)
    return st.fixed_dictionaries(
        {
            "tensors": st.one_of(st.none(), checkpoint_tensors(n_shards)),
            "metadata": metadata,
            "step": st.sampled_from([1, 0, 10, 999, 2**31, 2**53 + 1]),
            "algorithm": st.sampled_from(["sha256", "sha256-tree"]),
            "seed": _SEEDS,
        }
    )


_OPTIONS: dict[str, Callable[[int], st.SearchStrategy[dict[str, Any]]]] = {
    "saev": lambda n_shards: st.fixed_dictionaries(
        {},
        optional={
            "examples_per_shard": st.integers(1, 4),
            "layers": st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True),
            "content_tokens_per_example": st.integers(1, 4),
            "cls_token": st.booleans(),
            "d_model": st.integers(1, 9),
            "labels": st.booleans() if n_shards else st.just(False),
        },
    ),
    "checkpoint": _checkpoint_options,
    "mds": lambda _: st.fixed_dictionaries(
        {"seed": _SEEDS}, optional={"hashes": st.sampled_from([["sha1"], ["md5", "sha256"]])}
    ),
}
"""The shapes of a format's directories, by how many shards they have; those of others are seeds."""


def checkpoint_tensors(
    n_ranks: int, *, max_tensors: int = 4, dtypes: Collection[str] = tuple(ITEM_SIZES)
) -> st.SearchStrategy[Any]:
    """Return a strategy for the tensors of all ranks, as `Layout` takes them.

    They have up to four dimensions, or none, and may be without elements; a rank may be without
    tensors. No name is in two ranks.

    Args:
        n_ranks: How many ranks there are.
        max_tensors: How many tensors a rank has at most.
        dtypes: Those to choose from.

    Raises:
        TypeError: A number that is no integer.
        ValueError: A number below its least; something that is no dtype, or none.

    Example:
        >>> from hypothesis import find
        >>> find(checkpoint_tensors(1, dtypes=["int8"]), lambda ranks: len(ranks[0]) == 1)
        [[('layers.0.0', 'int8', ())]]
    """
    integer("n_ranks", n_ranks, at_least=1)
    integer("max_tensors", max_tensors, at_least=0)
    if unknown := {*dtypes} - ITEM_SIZES.keys() or not dtypes:
        raise ValueError(f"dtypes: expected some of {', '.join(ITEM_SIZES)}, found {unknown}")
    shape = st.lists(st.integers(0, 5), max_size=4).map(tuple)
    one = st.tuples(st.sampled_from([dtype for dtype in ITEM_SIZES if dtype in dtypes]), shape)
    ranks = st.lists(st.lists(one, max_size=max_tensors), min_size=n_ranks, max_size=n_ranks)
    return ranks.map(
        lambda drawn: [
            [(f"layers.{rank}.{place}", *each) for place, each in enumerate(some)]
            for rank, some in enumerate(drawn)
        ]
    )


def damages(kinds: Collection[str] = tuple(DamageKind)) -> st.SearchStrategy[Damage]:
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
        layouts_of: What they list; by default any of `layouts`.

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
    listed = layouts() if layouts_of is None else layouts_of
    return st.builds(_spelled, listed, st.randoms(), spellings)


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

"""Hypothesis strategies for shards directories, receipts and checkpoints: whole, damaged, hostile.

Needs hypothesis (``pip install 'shardproof[testing]'``). With it installed, `layouts` is found by
``st.from_type(Layout)``; the strategies of receipts and of checkpoints are found so too.
"""

import itertools
import json
from collections.abc import Collection
from typing import Any

from shardproof.testing._extras import extra

with extra():
    from hypothesis import strategies as st

    from shardproof.testing.contracts._checkpoint_strategies import (
        checkpoint_layouts,
        checkpoint_metadata_states,
        checkpoint_shard_states,
        hostile_checkpoint_metadata,
    )
    from shardproof.testing.contracts._choice import chosen
    from shardproof.testing.contracts._hostile import hostile_json, hostile_names, twins
    from shardproof.testing.contracts._receipt_strategies import (
        hostile_receipts,
        receipt_states,
        receipts_layouts,
    )
    from shardproof.testing.faults.damage import Damage, DamageKind
    from shardproof.testing.samples.saev._content import manifest_files
    from shardproof.testing.samples.saev._layout import Layout, layout
    from shardproof.testing.samples.saev._states import ShardState

__all__ = [
    "checkpoint_layouts",
    "checkpoint_metadata_states",
    "checkpoint_shard_states",
    "damages",
    "hostile_checkpoint_metadata",
    "hostile_json",
    "hostile_names",
    "hostile_receipts",
    "layouts",
    "manifests",
    "receipt_states",
    "receipts_layouts",
    "shard_states",
    "twins",
]


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
    return st.sampled_from(chosen("states", states, ShardState))


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
    to a directory of one shard. About one in four has ``missing``, ``empty``,
    ``unreadable`` and ``directory`` shards at once.

    **A loader that opens what is no file waits for ever:** nobody writes to the named pipe of a
    ``fifo``. Call it inside `shardproof.testing.time_limit`, which turns that into an error, or
    leave the state out.

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
    common = [state for state in _COMMON if state in states]
    whole = sizes.map(lambda n: [ShardState.OK] * n)
    ruins = st.lists(one, min_size=min_shards, max_size=max_shards)
    # Many shards with the same thing wrong, for code that gives up after the second.
    alike = st.tuples(sizes, one).flatmap(_alike)
    # All that is common wrong at once, for code that looks for one thing after the other.
    mixed = _together(common, ruins, min_shards, max_shards)
    shape = _shapes() if shapes else st.just({})
    return _layouts(_often(ruins, whole, alike, mixed, whole, mixed, mixed, whole), shape)


def _often(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of them; those named more often come more often, which one_of() does not do."""
    return st.sampled_from(strategies).flatmap(lambda strategy: strategy)


def _alike(drawn: tuple[int, ShardState]) -> st.SearchStrategy[list[ShardState]]:
    n, state = drawn
    return st.lists(st.sampled_from([ShardState.OK, state, state]), min_size=n, max_size=n)


_COMMON = [ShardState.MISSING, ShardState.EMPTY, ShardState.UNREADABLE, ShardState.DIRECTORY]


_PLACES = {state: place for place, state in enumerate(ShardState)}


def _together(
    common: list[ShardState],
    ruins: st.SearchStrategy[list[ShardState]],
    at_least: int,
    at_most: int,
) -> st.SearchStrategy[list[ShardState]]:
    """Mostly all that is common, then others, turned round; each goes by itself in shrinking."""
    also = st.tuples(*(st.sampled_from([[], [ShardState.OK], *[[state]] * 9]) for state in common))

    def fitted(
        drawn: tuple[tuple[list[ShardState], ...], list[ShardState], int],
    ) -> list[ShardState]:
        some, others, turn = drawn
        states = [*itertools.chain(*some), *others][:at_most]
        states += [ShardState.OK] * (at_least - len(states))
        if not turn:  # one order for equal states, so that they shrink to one layout
            return sorted(states, key=lambda state: (state is ShardState.OK, _PLACES[state]))
        turn %= len(states) or 1
        return states[turn:] + states[:turn]

    return st.tuples(also, ruins, st.integers(0, 7)).map(fitted)


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
    kind = st.sampled_from(chosen("kinds", kinds, DamageKind))
    return st.builds(Damage, kind=kind, seed=st.integers(0, 2**32 - 1))


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

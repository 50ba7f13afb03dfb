"""States of shards, as the keywords of layouts name them: ``missing=[1], empty=[2, 3]``.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from shardproof.testing.samples._keywords import integers

__all__ = ["indices_by_state", "taken_states"]

State = TypeVar("State", bound=StrEnum)


def taken_states(
    said: dict[str, Any], n_shards: int, keywords: Mapping[str, State], otherwise: State
) -> tuple[State, ...]:
    """Take the keywords that name states out of those that were said; return each shard's state.

    Args:
        said: What was said; ``None`` is as good as nothing.
        n_shards: How many shards there are.
        keywords: Which keyword names which state; a state may have several.
        otherwise: The state of shards that are not named.

    Raises:
        TypeError: An index that is no integer, or something else than a list of indices.
        ValueError: An index out of range, or named twice.
    """
    names: dict[int, str] = {}
    for name in keywords:
        for index in integers(name, said.pop(name, None)):
            if not 0 <= index < n_shards:
                raise ValueError(f"{name}: expected indices from 0 below {n_shards}, found {index}")
            if index in names:
                raise ValueError(f"{name}: shard {index} is already named under {names[index]}")
            names[index] = name
    named = {index: keywords[name] for index, name in names.items()}
    return tuple(named.get(index, otherwise) for index in range(n_shards))


def indices_by_state(states: Sequence[State], otherwise: State) -> Iterator[tuple[str, list[int]]]:
    """Yield the keywords that name these states, in the order of the enumeration."""
    for state in type(otherwise):
        indices = [index for index, found in enumerate(states) if found is state]
        if state is not otherwise and indices:
            yield state.value, indices

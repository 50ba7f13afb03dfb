"""States of shards, as the keywords of layouts name them: ``missing=[1], empty=[2, 3]``.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

__all__ = ["indices_by_state", "refuse_unknown", "states_by_index"]

State = TypeVar("State", bound=StrEnum)


def states_by_index(
    n_shards: int, named: Mapping[State, Iterable[int]], otherwise: State
) -> tuple[State, ...]:
    """Return the state of each shard.

    Args:
        n_shards: How many shards there are.
        named: Indices of shards by state.
        otherwise: The state of shards that are not named.

    Raises:
        TypeError: An index that is no integer.
        ValueError: An index out of range, or named twice.
    """
    states: dict[int, State] = {}
    for state, indices in named.items():
        for index in indices:
            _refuse_index(state, index, n_shards)
            if index in states:
                raise ValueError(f"{state}: shard {index} is already named under {states[index]}")
            states[index] = state
    return tuple(states.get(index, otherwise) for index in range(n_shards))


def _refuse_index(state: StrEnum, index: object, n_shards: int) -> None:
    if type(index) is not int:
        raise TypeError(f"{state}: expected indices of type int, found {index!r}")
    if not 0 <= index < n_shards:
        raise ValueError(f"{state}: expected indices from 0 below {n_shards}, found {index}")


def indices_by_state(states: Sequence[State], otherwise: State) -> Iterator[tuple[str, list[int]]]:
    """Yield the keywords that name these states, in the order of the enumeration."""
    for state in type(otherwise):
        indices = [index for index, found in enumerate(states) if found is state]
        if state is not otherwise and indices:
            yield state.value, indices


def refuse_unknown(function: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError that lists the keywords that a function does not have, if there are any."""
    if found := ", ".join(sorted(unknown)):
        raise TypeError(f"{function}: expected keywords among {', '.join(known)}, found {found}")

"""Sample directories of formats that others write, by the standard library: what they share."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar

from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions
from shardproof.testing.samples._oracle import KINDS, LEVELS, seen_problems
from shardproof.testing.samples._states import ShardState

UNWRITTEN = {ShardState.SPARSE: "unwritten"}
"""What ``complete`` sees of any file."""

OTHER_SIZE = UNWRITTEN | dict.fromkeys([ShardState.TRUNCATED, ShardState.EXTENDED], "size")
"""What ``complete`` sees where sizes are stated."""

OTHER_ENDS = UNWRITTEN | dict.fromkeys([ShardState.TRUNCATED, ShardState.EXTENDED], "structure")
"""What ``complete`` sees where each file itself tells where it ends."""

OTHER_BYTES = dict.fromkeys([ShardState.FLIPPED, ShardState.SWAPPED], "digest")
"""What ``valid`` sees where digests are stated."""


class ForeignOptions(SampleOptions):
    """What a directory is like whose shards are called by a pattern."""

    least_shards = 1
    pattern: ClassVar[str]  # of index, number (the first is 1) and n_shards

    def shard_name(self, index: int) -> str:
        return self.pattern.format(index=index, number=index + 1, n_shards=self.n_shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sight:
    """What shows of a damaged shard, and of which others nothing is proven."""

    complete: Mapping[ShardState, str]  # what it sees beyond `present`
    valid: Mapping[ShardState, str] = dataclasses.field(default_factory=dict)
    unlisted: Collection[str] = ()  # states in which nothing tells that there ought to be a shard
    unproven: Collection[str] = ()  # levels at which nothing proves a shard

    def problems(self, layout: Layout, level: str, digests: bool) -> Iterator[tuple[str, str]]:
        """Yield kind and name of what shows, as `SampleFormat` has it."""
        if digests:  # of a manifest that states them all formats are alike
            yield from seen_problems(layout, level, digests)
            return
        shown = self._shown(level)
        for index, state in enumerate(layout.states):
            if state in shown:
                yield shown[state], layout.shard_name(index)

    def unproven_names(self, layout: Layout, level: str, digests: bool) -> Iterator[str]:
        """Yield the names of what is not proven, as `SampleFormat` has it."""
        if digests or level not in self.unproven:
            return
        others = self._shown(level).keys() | {*self.unlisted}
        for index, state in enumerate(layout.states):
            if state not in others:
                yield layout.shard_name(index)

    def _shown(self, level: str) -> dict[str, str]:
        shown: dict[str, str] = {**KINDS["present"]}
        for more in (self.complete, self.valid)[: LEVELS.index(level)]:
            shown.update((str(state), kind) for state, kind in more.items())
        return {state: kind for state, kind in shown.items() if state not in self.unlisted}


def flat(
    name: str,
    options: type[Any],
    read_bytes: Callable[[Layout, str], bytes],
    sight: Callable[[Layout], Sight],
    *manifests: str,
) -> SampleFormat:
    """Return a format that is one directory of files; without a manifest its shards tell of it."""
    return SampleFormat(
        name=name,
        options=options,
        manifest_names=lambda _: manifests,
        read_bytes=read_bytes,
        problems=lambda layout, *asked: sight(layout).problems(layout, *asked),
        unproven=lambda layout, *asked: sight(layout).unproven_names(layout, *asked),
        known_by_shards=not manifests,
    )


def made_bytes(layout: Layout, index: int, n_bytes: int) -> bytes:
    """Return bytes of which no two shards, and no two seeds, have the same."""
    return hashlib.shake_128(f"shard {index}, seed {layout.seed}".encode()).digest(n_bytes)

"""Find out in which shard each tensor is."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry, TensorEntry
from shardproof.checkpoint.storage._storage import Location
from shardproof.errors import CheckpointError

__all__ = ["TensorIndex", "find_tensors"]

_SHOWN = 20


@dataclasses.dataclass(frozen=True, slots=True)
class TensorIndex:
    """The tensors that were asked for, and the shards that they are in.

    Attributes:
        tensors: By name, in the order in which they were asked for.
        shards: All shards of the checkpoint.
    """

    tensors: dict[str, TensorEntry]
    shards: Sequence[ShardEntry]

    def by_shard(self) -> Iterator[tuple[ShardEntry, list[TensorEntry]]]:
        """Yield each shard that has some of them, and which, in the order of the file."""
        for shard in self.shards:
            wanted = [tensor for tensor in shard.tensors if tensor.name in self.tensors]
            if wanted:
                yield shard, wanted


def find_tensors(
    location: Location, metadata: CheckpointMetadata, names: Sequence[str] | None
) -> TensorIndex:
    """Find tensors by name.

    Args:
        location: Of the checkpoint.
        metadata: Its metadata.
        names: Which tensors; None for all.

    Raises:
        CheckpointError: Some are in no shard, or in several; the text lists them.
        TypeError: One name instead of several.
    """
    if isinstance(names, str):
        raise TypeError(f"names: expected a list of names, found {quoted(names)}")
    every = [tensor for shard in metadata.shards for tensor in shard.tensors]
    counts = Counter(tensor.name for tensor in every)
    wanted = dict.fromkeys(counts if names is None else names)
    problems = _listed("in no shard", [name for name in wanted if not counts[name]])
    problems += _listed("in several shards", [name for name in wanted if counts[name] > 1])
    if problems:
        text = f"expected each tensor in one shard, found some {' and some '.join(problems)}"
        raise CheckpointError(text, path=location.metadata)
    of_name = {tensor.name: tensor for tensor in every}
    return TensorIndex({name: of_name[name] for name in wanted}, metadata.shards)


def _listed(title: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{title}: {', '.join(map(quoted, names[:_SHOWN]))}{more}"]

"""Which checkpoint of a directory is the newest that is whole."""

import logging
import os

from shardproof._base.arguments import checked
from shardproof._base.messages import printable
from shardproof.checkpoint.storage._prefixes import prefixes_in
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.checkpoint.storage._unfinished import unfinished_of
from shardproof.checkpoint.verify._steps import is_whole, newest_first
from shardproof.report import Level

__all__ = ["latest_checkpoint"]

logger = logging.getLogger("shardproof.checkpoint")


@checked
def latest_checkpoint(
    directory: str | os.PathLike[str],
    *,
    name: str | None = None,
    storage: CheckpointStorage | None = None,
    level: Level = "valid",
) -> str | None:
    """Return the prefix of the newest whole checkpoint; None if there is none.

    Newest is what has the highest step, and of those the latest timestamp. What is torn, partial
    or of mixed steps is passed over, and the log says why; it warns of unfinished steps,
    too: shards without metadata, whose save was killed or still runs.

    Args:
        directory: Where checkpoints are: in it, or in its direct subdirectories, such as
            ``step_100/``.
        name: The last part of the prefix, such as ``"model"``, where a step has several.
        storage: By default a directory, or for an address with ``://`` what fsspec opens.
        level: ``"valid"`` proves every byte of the one that is returned. ``"complete"`` is quick:
            it compares sizes and headers, for who loads it with verification anyway.

    Raises:
        OSError: The directory can't be listed, or something could not be looked at (EIO, ESTALE):
            what is the newest is not known then, and an older one is not taken for it.
        TypeError: An argument of the wrong type.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardSaver, latest_checkpoint
        >>> for step in (10, 20):
        ...     prefix = f"{output_dir}/steps/step_{step}/model"
        ...     path = MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(step)})
        ...     path = MultiShardSaver().save_metadata(prefix, world_size=1, step=step)
        >>> latest_checkpoint(f"{output_dir}/steps").removeprefix(str(output_dir))
        '/steps/step_20/model'
    """
    prefixes = prefixes_in(directory, storage)
    for step in unfinished_of(prefixes):
        if name is None or os.path.basename(step.prefix) == name:
            logger.warning("%s", printable(str(step)))
    places = [place for place in prefixes.committed if name in {None, place.name}]
    for candidate in newest_first(places):
        if is_whole(candidate, level):
            return candidate.place.storage.address(candidate.place.path)
    return None

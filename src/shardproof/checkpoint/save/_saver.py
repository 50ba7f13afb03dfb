"""Save checkpoints: each rank its shard, and one of them the metadata."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from shardproof._base.arguments import checked, count
from shardproof._base.fanout import Future
from shardproof._base.messages import quoted
from shardproof._base.work import apart, in_thread
from shardproof.checkpoint._format import MAX_NAME, MAX_RANK, TIMESTAMP, Sharding
from shardproof.checkpoint.save._commit import (
    Algorithm,
    Attempt,
    clear_way,
    make_checkpoint,
    now,
    place_to_save,
    refuse_text,
)
from shardproof.checkpoint.save._shard_writer import tensors_of, write_shard
from shardproof.checkpoint.save._snapshot import Snapshots
from shardproof.checkpoint.storage._storage import CheckpointStorage

logger = logging.getLogger("shardproof.checkpoint")


class ShardSaving(Future[str]):
    """A shard that is being saved behind the caller; its result is the path."""

    def __init__(self) -> None:
        super().__init__()
        self._pid, self._is_told = os.getpid(), False

    def begin(self, save: Callable[[], str]) -> None:
        """Save in a thread, for which an interpreter that ends waits."""

        def run() -> None:
            try:
                self.set_result(save())
            except BaseException as error:
                logger.exception("A shard was not saved")
                self.set_exception(error)

        self.set_running_or_notify_cancel()
        thread = threading.Thread(target=run, name="shardproof-save")
        try:
            apart(lambda _: thread.start())
        except RuntimeError:  # the system gives none, or the interpreter ends
            run()

    def result(self, timeout: float | None = None) -> str:
        """Return the path, or raise what the save raised."""
        self._is_told = self.exception(timeout) is not None
        return super().result()

    def settle(self) -> None:
        """Wait until it has ended; raise what it raised, unless that was raised before."""
        if self._pid == os.getpid() and self.exception() is not None and not self._is_told:
            self.result()


class MultiShardSaver:
    """Save a checkpoint of many ranks: each saves its shard, and one saves the metadata, last.

    Args:
        storage: Where; by default a directory, or for a prefix with ``://`` what fsspec opens.
        algorithm: Of the checksum by which the data of a shard can be proven: ``"sha256"``;
            ``"sha256-tree"``, which uses all processors for one shard, and is what to take for
            shards of gigabytes; ``"blake3"``, the fastest (``pip install 'shardproof[blake3]'``).
        sync: Whether a file is on the disk when it has its name; without, a checkpoint holds until
            a power cut.
        attempt: What all ranks of this attempt to save have in common and no other attempt has,
            such as the number of the job and how often it was started. Shards of two attempts
            never make one checkpoint. By default what SLURM and torchrun tell; ranks that are
            processes of something else are known to be together only by this.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: Another algorithm, or one whose package is not installed; or ``attempt`` is
            empty, over 4096 characters or no Unicode.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardSaver
        >>> saver = MultiShardSaver()
        >>> for rank in range(2):  # each in its own process
        ...     arrays = {f"layer{rank}.weight": np.full((2, 3), rank, np.float32)}
        ...     path = saver.save_shard(f"{output_dir}/step_100/model", rank, arrays)
        >>> path = saver.save_metadata(f"{output_dir}/step_100/model", world_size=2, step=100)
    """

    @checked
    def __init__(
        self,
        storage: CheckpointStorage | None = None,
        *,
        algorithm: Algorithm = "sha256",
        sync: bool = True,
        attempt: str | None = None,
    ) -> None:
        if attempt is not None:
            count("attempt: its length", len(attempt), 1, MAX_NAME)
            refuse_text("attempt", attempt)
        self._attempt, self._storage = Attempt(algorithm, attempt, sync=sync), storage
        self._snapshots = Snapshots()
        self._behind: ShardSaving | None = None

    @checked
    def save_shard(
        self,
        prefix: str | os.PathLike[str],
        rank: int,
        arrays: Mapping[str, Any],
        *,
        step: int | None = None,
        overwrite: bool = False,
    ) -> str:
        """Write the shard of one rank, whole or not at all; return its absolute path or URL.

        The bytes are hashed while they are written, in pieces of a few MiB.

        Args:
            prefix: What the names of the checkpoint's files begin with, such as
                ``"run/step_100/model"``.
            rank: Of this process, from 0 on.
            arrays: Arrays of numpy or tensors of torch, by name. A mapping other than a dict may
                make each when it is asked for: none is kept when the next one is. They must not be
                changed before this returns: what is written is what they hold meanwhile.
            step: Of the training. If given, `save_metadata` takes in no other step's shard.
            overwrite: Whether a checkpoint that is there is given up: its metadata file is removed
                before anything is written. One that is made meanwhile is kept, and this raises.

        Raises:
            CheckpointError: A checkpoint is there, or was made meanwhile, and is not to be
                overwritten; or another attempt at this prefix is about to make one.
            OSError: It could not be written; nothing is left of it, but what an `UnsyncedError`
                names: the shard, or a directory. It is to be saved again.
            TypeError: An argument of the wrong type, or a tensor whose type the format lacks.
            ValueError: A rank below 0; a tensor's name that is empty, over 4096 characters or no
                Unicode; or the prefix's last part is no name for files: no Unicode, over 255 bytes,
                or with a backslash or a control character.
        """
        count("rank", rank, 0, MAX_RANK)
        self._settle()
        return apart(lambda _: self._save(prefix, rank, arrays, step, overwrite=overwrite))

    def _save(
        self,
        prefix: str | os.PathLike[str],
        rank: int,
        arrays: Mapping[str, Any],
        step: int | None,
        *,
        overwrite: bool,
    ) -> str:
        location = place_to_save(prefix, self._storage, step)
        tensors = tensors_of(arrays)
        clear_way(location, overwrite=overwrite)
        return write_shard(location, rank, tensors, self._attempt, step=step, overwrite=overwrite)

    @checked
    def begin_shard(
        self,
        prefix: str | os.PathLike[str],
        rank: int,
        arrays: Mapping[str, Any],
        *,
        step: int | None = None,
        overwrite: bool = False,
    ) -> "ShardSaving":
        """Copy the arrays, and write the shard of one rank behind; return when training may go on.

        The copy is in the memory of the host, pinned for tensors of a GPU, and used again by the
        next one: it takes as much as the arrays, as long as this saver is there (pinned up to twice
        as much, as torch rounds each tensor up to a power of two). One save is under way at a time:
        the next, and `save_metadata`, wait for it first, and raise what it raised unless the handle
        did. The interpreter does not end before it has.

        Arguments are those of `save_shard`; the arrays may be changed once this has returned. A
        wrong one is refused at once, as there.

        Returns:
            A `concurrent.futures.Future`, whose ``result()`` is what `save_shard` returns, or
            raises what that raises.

        Raises:
            Exception: What the save before raised.

        Example:
            >>> import numpy as np
            >>> from shardproof.checkpoint import MultiShardSaver
            >>> saver, weights = MultiShardSaver(), np.zeros(3)
            >>> saving = saver.begin_shard(f"{output_dir}/step_7/model", 0, {"w": weights}, step=7)
            >>> weights += 1  # the next step of training
            >>> path = saving.result()
            >>> path = saver.save_metadata(f"{output_dir}/step_7/model", world_size=1, step=7)
        """
        count("rank", rank, 0, MAX_RANK)
        self._settle()
        place_to_save(prefix, self._storage, step)
        taken, saving = self._snapshots.take(arrays), ShardSaving()
        # Known before it begins: after an interrupt the next one must not copy over these arrays.
        self._behind = saving
        saving.begin(lambda: self._save(prefix, rank, taken, step, overwrite=overwrite))
        return saving

    def _settle(self) -> None:
        """Wait for the save behind this saver, and raise what nobody was told of it."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.settle()

    save_shard_async = in_thread(save_shard)
    """Do as `save_shard` in a thread, which has ended when this returns or is cancelled."""

    @checked
    def save_metadata(
        self,
        prefix: str | os.PathLike[str],
        *,
        world_size: int,
        step: int = 0,
        strategy: str = "unspecified",
        precision: str | None = None,
        timestamp: str | None = None,
    ) -> str:
        """Make a checkpoint of the shards of all ranks; return the path of its metadata file.

        To be called by one process, when all have saved. Each shard that it names is there, has
        the size and the header that its rank recorded, and is of this step where that was given,
        and of this attempt as far as that is known. Of several calls for one prefix at once, at
        most one succeeds, and the others raise.

        Args:
            prefix: As for `save_shard`.
            world_size: How many ranks there are.
            step: Of the training.
            strategy: How tensors were dealt out; any text.
            precision: Any text; by default the type of all floating-point tensors, or ``"mixed"``.
            timestamp: RFC 3339 in UTC; by default now.

        Raises:
            CheckpointError: Shards are missing, are not those that were recorded, or are of another
                attempt: all are listed. Or there is a checkpoint already, or another attempt is
                about to make one.
            OSError: It could not be written, or a shard could not be checked. Of
                `UnsyncedError` the checkpoint exists, but may not survive a power cut.
            TypeError: An argument of the wrong type.
            ValueError: ``world_size`` below 1, ``step`` below 0, a timestamp that is none, a text
                that is no Unicode, or a prefix as for `save_shard`.
        """
        count("world_size", world_size, 1, MAX_RANK + 1)
        if timestamp is not None and not TIMESTAMP.fullmatch(timestamp):
            raise ValueError(f"timestamp: expected one such as {now()}, found {quoted(timestamp)}")
        refuse_text("strategy", strategy)
        refuse_text("precision", precision or "")
        location = place_to_save(prefix, self._storage, step)
        sharding = Sharding(strategy, world_size, precision or "")
        attempt = self._attempt
        self._settle()
        return apart(lambda _: make_checkpoint(location, sharding, attempt, step, timestamp))

    save_metadata_async = in_thread(save_metadata)
    """Do as `save_metadata` in a thread, which has ended when this returns or is cancelled."""

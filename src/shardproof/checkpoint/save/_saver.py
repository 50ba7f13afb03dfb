"""Each rank saves its shard, and one of them makes a checkpoint of them."""

import contextlib
import datetime
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from shardproof._base import digest as _digest
from shardproof._base.arguments import checked
from shardproof._base.loop_threads import LoopThreads
from shardproof._base.messages import listed, quoted, told
from shardproof._base.work import apart
from shardproof.checkpoint.format._layout import MAX_RANK, metadata_name, note_name
from shardproof.checkpoint.format._metadata import (
    MAX_NAME,
    SCHEMA_VERSION,
    TIMESTAMP,
    CheckpointMetadata,
    ShardEntry,
    Sharding,
)
from shardproof.checkpoint.format._rank_record import Note
from shardproof.checkpoint.save._attempt import Attempt, mixed
from shardproof.checkpoint.save._before_saving import (
    refuse_name,
    refuse_number,
    refuse_step,
    refuse_text,
)
from shardproof.checkpoint.save._commit import clear_way, commit
from shardproof.checkpoint.save._needless import sweep_needless
from shardproof.checkpoint.save._shard_writer import write_shard
from shardproof.checkpoint.save._tensors import tensors_of
from shardproof.checkpoint.storage._metadata_file import pack_metadata, read_note
from shardproof.checkpoint.storage._open_shard import open_shard
from shardproof.checkpoint.storage._storage import CheckpointStorage, Place, place_of
from shardproof.checkpoint.verify._inspect import refuse_blind
from shardproof.errors import CheckpointError, CheckpointNotFoundError

__all__ = ["DigestName", "MultiShardSaver", "make_checkpoint", "now"]

DigestName = Literal["sha256", "sha256-tree", "blake3"]


class MultiShardSaver:
    """Save a checkpoint of many ranks: each its own shard, one of them the metadata, last.

    Args:
        storage: Where; by default a directory, or for a prefix with ``://`` what fsspec opens.
        digest: By which the data of a shard can be proven: ``"sha256"``; ``"sha256-tree"``, which
            uses all processors for one shard; ``"blake3"``, the fastest
            (``pip install shardproof[blake3]``).
        sync: Whether a file is on the disk when it has its name; without, a checkpoint holds until
            a power cut.
        attempt: What all ranks of this attempt to save have in common and no other attempt has,
            such as the number of the job and how often it was started. Shards of two attempts
            never make one checkpoint. By default what SLURM and torchrun tell; ranks that are
            processes of something else are known to be together only by this.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: The package that computes the digest is not installed; or ``attempt`` is empty,
            over 4096 characters or no Unicode.

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
        digest: DigestName = "sha256",
        sync: bool = True,
        attempt: str | None = None,
    ) -> None:
        _digest.begin(digest, 0)
        if attempt is not None:
            refuse_number("attempt: its length", len(attempt), 1, MAX_NAME)
            refuse_text("attempt", attempt)
        self._attempt = Attempt(attempt)
        self._storage, self._digest, self._sync = storage, digest, sync

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
        """Write the shard of one rank, whole or not at all; return its absolute path or address.

        The bytes are hashed while they are written, in pieces of a few MiB.

        Args:
            prefix: What the names of the checkpoint's files begin with, such as
                ``"run/step_100/model"``.
            rank: Of this process, from 0 on.
            arrays: Arrays of numpy or tensors of torch, by name. A mapping other than a dict may
                make each when it is asked for: none is kept when the next one is.
            step: Of the training. Where it is told, `save_metadata` takes in no other step's shard.
            overwrite: Whether a checkpoint that is there is given up: its metadata file is removed
                before anything is written. It stays where the folder of a removal can't be
                removed, into which somebody else may still move shards.

        Raises:
            CheckpointError: A checkpoint is there, or was made meanwhile, and is not to be
                overwritten; or another attempt at this prefix is about to make one.
            OSError: It could not be written; nothing is left of it, but where it is an
                `UnsyncedError`: then the shard is there, and is to be saved again.
            TypeError: An argument of the wrong type, or a tensor whose type the format lacks.
            ValueError: A rank below 0, a tensor's name that is empty or over 4096 characters; or
                that name, or the prefix's last part, is no Unicode.
        """
        return apart(
            lambda stop: self._save_shard(
                prefix, rank, arrays, step=step, overwrite=overwrite, stop=stop
            )
        )

    def _save_shard(
        self,
        prefix: str | os.PathLike[str],
        rank: int,
        arrays: Mapping[str, Any],
        *,
        step: int | None,
        overwrite: bool,
        stop: threading.Event | None,
    ) -> str:
        refuse_number("rank", rank, 0, MAX_RANK)
        refuse_step(step)
        place = place_of(prefix, self._storage)
        refuse_name(place)
        tensors = tensors_of(arrays)
        _make_way(place, overwrite=overwrite)
        return write_shard(
            place,
            rank,
            tensors,
            digest=self._digest,
            sync=self._sync,
            step=step,
            attempt=self._attempt,
            overwrite=overwrite,
            stop=stop,
        )

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
        the size and the header that its rank noted, and is of this step where that was told, and of
        this attempt as far as that is known. Of several who make a checkpoint of one prefix at
        once, at most one succeeds, and the others are told.

        Args:
            prefix: As for `save_shard`.
            world_size: How many ranks there are.
            step: Of the training.
            strategy: How tensors were dealt out; any text.
            precision: Any text; by default the type of all floating-point tensors, or ``"mixed"``.
            timestamp: RFC 3339 in UTC; by default now.

        Raises:
            CheckpointError: A shard is not there or another, or of another attempt; all of them in
                one error. Or there is a checkpoint already, or another attempt is about to make
                one.
            OSError: It could not be written, or nobody could look whether a shard is there. Of
                `UnsyncedError` the checkpoint is there, but may not survive a power cut.
            TypeError: An argument of the wrong type.
            ValueError: ``world_size`` below 1, ``step`` below 0, a timestamp that is none, or a
                text that is no Unicode.
        """
        refuse_number("world_size", world_size, 1, MAX_RANK + 1)
        refuse_step(step)
        if timestamp is not None and not TIMESTAMP.fullmatch(timestamp):
            raise ValueError(f"timestamp: expected one such as {now()}, found {quoted(timestamp)}")
        refuse_text("strategy", strategy)
        refuse_text("precision", precision or "")
        place = place_of(prefix, self._storage)
        refuse_name(place)
        sharding = Sharding(strategy, world_size, precision or "")
        return apart(
            lambda _: make_checkpoint(
                place, step, sharding, timestamp or now(), self._attempt, sync=self._sync
            )
        )

    @checked
    async def save_shard_async(
        self,
        prefix: str | os.PathLike[str],
        rank: int,
        arrays: Mapping[str, Any],
        *,
        step: int | None = None,
        overwrite: bool = False,
    ) -> str:
        """Do as `save_shard` in a thread, which has ended when this returns or is cancelled.

        The arrays must not be changed until then: what is written is what they hold meanwhile.
        """
        return await LoopThreads().run(
            lambda stop: self._save_shard(
                prefix, rank, arrays, step=step, overwrite=overwrite, stop=stop
            ),
            "shardproof-save",
        )

    @checked
    async def save_metadata_async(
        self,
        prefix: str | os.PathLike[str],
        *,
        world_size: int,
        step: int = 0,
        strategy: str = "unspecified",
        precision: str | None = None,
        timestamp: str | None = None,
    ) -> str:
        """Do as `save_metadata` in a thread."""
        return await LoopThreads().run(
            lambda _: self.save_metadata(
                prefix,
                world_size=world_size,
                step=step,
                strategy=strategy,
                precision=precision,
                timestamp=timestamp,
            ),
            "shardproof-save",
        )


def make_checkpoint(
    place: Place, step: int, sharding: Sharding, timestamp: str, attempt: Attempt, *, sync: bool
) -> str:
    """Make a checkpoint of the shards of one attempt; return the path of its metadata file.

    Raises as `MultiShardSaver.save_metadata`.
    """
    world_size = sharding.shard_count
    _make_way(place, overwrite=False)
    shards = _noted_shards(place, world_size, step, attempt)
    precision = sharding.precision or _precision(shards)
    sharding = Sharding(sharding.strategy, world_size, precision)
    metadata = CheckpointMetadata(SCHEMA_VERSION, world_size, step, timestamp, sharding, shards, "")
    data = pack_metadata(place, metadata)
    commit(place, data, lambda: _see_that_all_are_there(place, shards), sync=sync)
    for shard in shards:
        attempt.forget(place.address(shard.file))
    _clear_up(place, shards)
    return place.address(metadata_name(place.name))


def _clear_up(place: Place, shards: Sequence[ShardEntry]) -> None:
    """Remove what nobody needs now, as far as that goes; the next save or `prune` does the rest."""
    for shard in shards:
        with contextlib.suppress(OSError):
            place.storage.remove(place.beside(note_name(place.name, shard.rank)))
    with contextlib.suppress(OSError):
        sweep_needless(place.storage, place.directory)
    with contextlib.suppress(OSError):
        place.storage.sweep(place.directory)


def _make_way(place: Place, *, overwrite: bool) -> None:
    """Do as `clear_way`; where it refuses, who was first may have left what nobody needs."""
    try:
        clear_way(place, overwrite=overwrite)
    except CheckpointError:
        with contextlib.suppress(OSError):
            sweep_needless(place.storage, place.directory)
        raise


def _noted_shards(
    place: Place, world_size: int, step: int, attempt: Attempt
) -> tuple[ShardEntry, ...]:
    notes, problems = [], []
    for rank in range(world_size):
        try:
            notes.append(_note_of(place, rank, step, attempt))
        except CheckpointError as error:
            refuse_blind(error)
            problems.append(f"rank {rank}: {told(error)}")
    problems += mixed(notes)
    _refuse(place, world_size, problems)
    return tuple(note.shard for note in notes)


def _refuse(place: Place, world_size: int, problems: Sequence[str]) -> None:
    if problems:
        title = f"of {world_size} shards some can't be named in it; save them, and then it again"
        path = place.address(metadata_name(place.name))
        raise CheckpointError(listed(title, problems), path=path)


def _note_of(place: Place, rank: int, step: int, attempt: Attempt) -> Note:
    address = place.address(note_name(place.name, rank))
    try:
        note = read_note(place, rank)
    except CheckpointNotFoundError as error:
        raise CheckpointNotFoundError("this rank has not saved its shard", path=address) from error
    if note.step not in {None, step}:
        raise CheckpointError(f"expected step {step}, found step {note.step}", path=address)
    if problem := attempt.stranger(place.address(note.shard.file), note):
        raise CheckpointError(problem, path=address)
    with open_shard(place, note.shard):
        return note


def _see_that_all_are_there(place: Place, shards: Sequence[ShardEntry]) -> None:
    """Look once more, at a moment from which on nobody replaces one without being noticed."""
    problems = []
    for shard in shards:
        try:
            with open_shard(place, shard):
                pass
        except CheckpointError as error:
            refuse_blind(error)
            problems.append(f"rank {shard.rank}: {told(error)}")
    _refuse(place, len(shards), problems)


def _precision(shards: Sequence[ShardEntry]) -> str:
    found = set(_floating(shards))
    return found.pop() if len(found) == 1 else "mixed" if found else "none"


def _floating(shards: Sequence[ShardEntry]) -> Iterator[str]:
    for shard in shards:
        for tensor in shard.tensors:
            if "float" in tensor.dtype or "complex" in tensor.dtype:
                yield tensor.dtype


def now() -> str:
    """Return what a checkpoint that is made now says of when it was."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

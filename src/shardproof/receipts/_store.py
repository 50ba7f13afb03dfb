"""The receipts of one plan: what is done, what is left, and whose turn it is."""

import functools
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from shardproof._base.arguments import checked, count
from shardproof._base.messages import printable, shown, told
from shardproof._base.names import real_root
from shardproof._base.opening import refuse_no_path
from shardproof._base.progress import reporting
from shardproof._base.work import apart
from shardproof.errors import (
    ManifestNotFoundError,
    ReceiptError,
    ShardClaimedError,
    ShardCompletedError,
)
from shardproof.receipts._claimed_shard import ClaimedShard
from shardproof.receipts._claims import Claims, refuse_times
from shardproof.receipts._directories import read_header
from shardproof.receipts._plan import Plan
from shardproof.receipts._plan_receipts import PlanVerdicts
from shardproof.receipts._records import Receipt, read_receipt
from shardproof.receipts._verdict import Verdict
from shardproof.report import BrokenFiles, Level

logger = logging.getLogger("shardproof.receipts")

_SHOWN = 20


class ReceiptStore:
    """The receipts of one plan directory.

    A shard is done when its receipt can be read, is of this plan and this shard, says completed,
    names each kind of output that the plan owes, and each output that it names is a regular file of
    exactly the recorded size (level ``"complete"``), or also has the recorded digest (``"valid"``),
    and is no other shard's, by that one's receipt.
    Nothing else is done: not a shard that was started, nor one whose outputs are gone.

    Args:
        plan_dir: The directory that holds ``plan.json`` and ``receipts/``; made by `Run.store`, or
            by NVIDIA-NeMo/Nemotron's data_prep.
        heartbeat: Seconds between two signs of life of a claim.
        stale_after: How many seconds a claim must have been *seen* not to change, by this store's
            own clock, before it is taken over. The holder says how long it may be silent; the
            longer one counts. A day at most.
        plan: The plan, where the caller has made it: then source files are where it says, and not
            where they were on the machine that wrote ``plan.json``.

    Attributes:
        path: Absolute path of the plan directory.
        plan_hash: The plan's name.
        n_shards: How many shards there are.

    Raises:
        ManifestNotFoundError: There is no ``plan.json``.
        ManifestError: It can't be read.
        ValueError: ``heartbeat`` is not between 0 and a third of ``stale_after``, or that is more
            than a day.

    Example:
        >>> import shardproof
        >>> store = shardproof.ReceiptStore(plan_dir)
        >>> store.pending()
        [0, 1, 2]
        >>> with store.claim(0) as work:
        ...     work.output_path("shard_000000.bin").write_bytes(b"tokens")
        6
        >>> store.pending(), store.is_completed(0)
        ([1, 2], True)
    """

    @checked
    def __init__(
        self,
        plan_dir: str | os.PathLike[str],
        *,
        heartbeat: float = 30.0,
        stale_after: float = 300.0,
        plan: Plan | None = None,
        _clock: Callable[[], float] = time.monotonic,
    ) -> None:
        refuse_no_path(plan_dir=plan_dir)
        refuse_times(heartbeat, stale_after)
        root = real_root(plan_dir)
        header = read_header(root)
        self.path = Path(root)
        self.plan_hash = header.plan_hash
        self.n_shards = header.n_shards
        self._header = header
        self._plan = plan
        self._verdicts = PlanVerdicts(header)
        self._heartbeat = heartbeat
        self._claims = Claims(root, heartbeat, stale_after, _clock)

    def __repr__(self) -> str:
        return f"ReceiptStore({os.fspath(self.path)!r})"

    @property
    def plan(self) -> Plan:
        """The whole plan; read when it is first asked for."""
        if self._plan is None:
            self._plan = Plan.load(self.path)
        return self._plan

    @checked
    def receipt(self, index: int) -> Receipt:
        """Return a shard's receipt, whatever it says.

        Raises:
            ReceiptError: There is none; the error has ``path`` and ``index``.
            ManifestError: It can't be read.
            IndexError: There is no such shard.
            OSError: The file system failed.

        Example:
            >>> import shardproof
            >>> store = shardproof.ReceiptStore(plan_dir)
            >>> for work in store.claim_pending():
            ...     with work:
            ...         work.mark_empty()
            >>> store.receipt(0).status
            'completed'
        """
        self._refuse_index(index)
        try:
            return read_receipt(self._header.root, index)
        except ManifestNotFoundError as error:
            problem = f"shard {index} of '{shown(self.path)}': there is no receipt"
            raise ReceiptError(problem, path=error.path, index=index) from error

    @checked
    def verdict(self, index: int, *, level: Level = "complete") -> Verdict:
        """Return whether a shard is done, with the reason.

        Args:
            index: The shard.
            level: How its outputs are checked: there and not empty (``"present"``); and of the
                recorded size (``"complete"``); and with the recorded digest (``"valid"``, where an
                output without one that can be proven is not done).

        Raises:
            IndexError: There is no such shard.
            OSError: It could not be checked (EIO, ESTALE, ...).
        """
        self._refuse_index(index)
        return self._verdicts.one(index, level)

    @checked
    def is_completed(self, index: int, *, level: Level = "complete") -> bool:
        """Whether a shard is done, and so not `pending`; arguments and errors as for `verdict`."""
        self._refuse_index(index)
        found = self._verdicts.unless_completed(index, level)
        _log_disbelieved([] if found is None else [found])
        return found is None

    @checked
    def pending(
        self, *, level: Level = "complete", workers: int | None = None, group: Any = None
    ) -> list[int]:
        """Return the shards that are not done, ascending; the log says why, and what is skipped.

        Args:
            level: As for `verdict`.
            workers: How many threads check; None to decide by how long the file system takes.
            group: The ranks that ask at once, as for `shardproof.distributed.validate`: rank 0
                looks, and all get its answer.

        Raises:
            ValueError: ``workers`` below 1.
            OSError: One could not be checked (EIO, ESTALE, ...): that is neither done nor not.
        """
        if group is not None:
            from shardproof.distributed.calls import called, one_answer  # noqa: PLC0415 - rarely used

            find = functools.partial(self.pending, level=level, workers=workers)
            return one_answer(group, called("pending", self.path, level=level), find)
        verdicts = self.verdicts(pending=True, level=level, workers=workers)
        _log_disbelieved(verdicts)
        pending = [found.index for found in verdicts]
        if len(pending) < self.n_shards and logger.isEnabledFor(logging.INFO):
            skipped = sorted(set(range(self.n_shards)) - set(pending))
            done = f"{len(skipped)} of {self.n_shards}"
            which = f"completed, with every output as recorded: {slurm_array(skipped)}"
            logger.info("Skipping %s shards: %s", printable(done), printable(which))
        return pending

    @checked
    def verdicts(
        self,
        *,
        pending: bool = False,
        level: Level = "complete",
        workers: int | None = None,
        progress: bool | Callable[[int, int], None] = False,
    ) -> list[Verdict]:
        """Return the verdict on each shard, ascending.

        Args:
            pending: Whether only those that are not done are wanted, which takes much less time.
            level: As for `verdict`.
            workers: As for `pending`.
            progress: As for `shardproof.validate`.

        Raises:
            ValueError: ``workers`` below 1.
            OSError: A shard could not be checked (EIO, ESTALE, ...).

        Example:
            >>> import shardproof
            >>> store = shardproof.ReceiptStore(plan_dir)
            >>> for work in store.claim_pending():
            ...     with work:
            ...         work.mark_empty()
            >>> {found.status for found in store.verdicts()}, store.verdicts(pending=True)
            ({'completed'}, [])
        """
        if workers is not None:
            count("workers", workers, 1)
        with reporting(progress, "shards") as show:
            return apart(lambda _: self._verdicts.all(level, workers, pending=pending), show)

    @checked
    def claim(self, index: int, *, level: Level = "complete") -> ClaimedShard:
        """Return a claim on a shard, to be entered: ``with store.claim(3) as work:``.

        While the block runs, no other worker gets the shard, on whatever node, unless this one
        shows no sign of life for ``stale_after`` seconds. At its end the outputs that
        `ClaimedShard.output_path` gave a place are synced, hashed and moved to their names, and the
        receipt says completed. An exception writes a receipt that says failed and is raised; an
        interrupt (KeyboardInterrupt, SystemExit) only gives the shard back.

        Args:
            index: The shard.
            level: As for `verdict`: what counts as done already.

        Raises:
            ShardCompletedError: It is done.
            ShardClaimedError: Another worker has it.
            IndexError: There is no such shard.
            OSError: It could not be checked, or the claim not be written.
        """
        self._refuse_index(index)
        return self._claim(index, level)

    def _claim(self, index: int, level: Level) -> ClaimedShard:
        self._refuse_completed(index, level)
        claim = None
        try:
            claim = self._claims.acquire(index)
            self._refuse_completed(index, level)  # the holder before may have done it
            self._claims.refuse_lost(claim)
            return ClaimedShard(
                claim,
                self._header,
                self._heartbeat,
                lambda: self.plan.file_assignments[index].files,
            )
        except BaseException:
            if claim is not None:  # an interrupt may come before this one has it
                claim.give_back()
            raise

    @checked
    def claim_pending(
        self, *, level: Level = "complete", wait: bool = False
    ) -> Iterator[ClaimedShard]:
        """Yield a claim on each pending shard that no other worker has; each once.

        Several workers may do this at once, and share the shards. Those of workers that died are
        taken over. Of a worker on another machine only time tells: in the end its claim is watched
        until it shows life, and is left alone, or has been silent for ``stale_after`` seconds
        since it was first seen.

        Args:
            level: As for `verdict`.
            wait: Whether to wait also for the shards of workers that live, which may give them back
                or die. Otherwise the next job does what they leave.

        Raises:
            OSError: A shard could not be checked, or a claim not be written.

        Example:
            >>> import shardproof
            >>> store = shardproof.ReceiptStore(plan_dir)
            >>> for work in store.claim_pending():
            ...     with work:
            ...         _ = work.output_path(f"shard_{work.index:06d}.bin").write_bytes(b"tokens")
            >>> store.pending()
            []
        """
        self._claims.sweep()
        held = yield from self._claim_each(self.pending(level=level), level, is_first=True)
        first = self._claims.undecided(held)
        if first and not wait:
            logger.info(
                "Looking whether workers elsewhere live: %s", printable(slurm_array([*first]))
            )
        while todo := held if wait else self._claims.silent(first, held):
            self._claims.pause()
            held = yield from self._claim_each(todo, level, is_first=False)

    def _claim_each(
        self, todo: Sequence[int], level: Level, *, is_first: bool
    ) -> Generator[ClaimedShard, None, list[int]]:
        """Yield a claim on each shard that is free; return those that others have."""
        held: list[int] = []
        for index in todo:
            try:
                work = self._claim(index, level)
            except (ShardClaimedError, ShardCompletedError) as error:
                if is_first or isinstance(error, ShardCompletedError):
                    logger.info("Skipping %s", told(error))
                if isinstance(error, ShardClaimedError):
                    held.append(index)
                continue
            try:
                yield work
            finally:
                work.close()
        return held

    def _refuse_completed(self, index: int, level: Level) -> None:
        found = self._verdicts.one(index, level)
        if found.completed:
            problem = f"shard {index} of '{shown(self.path)}': {found.reason}"
            raise ShardCompletedError(problem, path=self.path, index=index)

    def _refuse_index(self, index: int) -> None:
        if not 0 <= index < self.n_shards:
            raise IndexError(f"index: expected 0 to {self.n_shards - 1}, found {index}")


def slurm_array(indices: Sequence[int]) -> str:
    """Return ascending numbers, as of `ReceiptStore.pending`, for ``sbatch --array`` (sbatch(1)).

    Example:
        >>> from shardproof import receipts
        >>> receipts.slurm_array([3, 7, 12, 13, 14])
        '3,7,12-14'
    """
    return BrokenFiles(indices=tuple(indices)).ranges


def _log_disbelieved(verdicts: Sequence[Verdict]) -> None:
    found = [v for v in verdicts if v.status in {"completed", "damaged", "foreign"}]
    for disbelieved in found[:_SHOWN]:
        logger.warning(
            "Shard %d must be made again: %s", disbelieved.index, printable(disbelieved.reason)
        )
    if len(found) > _SHOWN:
        logger.warning("And %d more shards must be made again", len(found) - _SHOWN)

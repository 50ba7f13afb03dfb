"""One worker's claim on one shard: made, kept alive, proven to hold, and given back."""

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Iterator

import msgspec

from shardproof._base import files
from shardproof._base.liveness import owner_text, this_process
from shardproof._base.messages import shown, told
from shardproof.errors import ClaimLostError, UnsyncedError
from shardproof.receipts.claims._claim_files import ClaimFiles, ClaimRecord, encode_claim

logger = logging.getLogger("shardproof.receipts")


class Claim:
    """One worker's claim on one shard; in the directory ``workspace`` this claim alone writes."""

    def __init__(
        self,
        claim_files: ClaimFiles,
        index: int,
        generation: int,
        *,
        plan_hash: str,
        stale_after: float,
    ) -> None:
        self.index = index
        self._files = claim_files
        self._generation = generation
        self._path = claim_files.path_of(index, generation)
        self._fd = -1
        self._record = ClaimRecord(
            shard_index=index,
            plan_hash=plan_hash,
            token=secrets.token_hex(16),
            owner=owner_text(),
            process=this_process(),
            claimed_at=time.time(),
            stale_after=stale_after,
        )
        # With the token in its name, no later claim writes into what this one leaves.
        self.workspace = self._path.removesuffix("json") + self._record.token

    def publish(self) -> bool:
        """Make the claim's file; False where another worker did.

        Where it raises, the file may be there: `withdraw` takes it back.
        """
        try:
            is_made = files.publish(self._path, encode_claim(self._record))
        except UnsyncedError:
            is_made = True  # after a power cut, no worker is left to work under it
        if is_made:
            # Kept open: whatever comes under this name later, signs of life go to this claim alone.
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        return is_made

    def beat(self) -> None:
        """Show life once; raises as `raise_if_lost`."""
        self.raise_if_lost()
        self._record = msgspec.structs.replace(self._record, beat=self._record.beat + 1)
        files.rewrite(self._fd, encode_claim(self._record))

    def raise_if_lost(self) -> None:
        """Raise `ClaimLostError` if another worker took the shard over, or the file is gone."""
        holder = self._files.holder(self.index)
        if holder is None or holder.record is None or holder.record.token != self._record.token:
            became = "is no longer claimed: the claim's file is gone"
            if holder is not None:
                became = f"was taken over by {shown(holder.owner, 300)}"
            root = self._files.root
            problem = f"shard {self.index} of '{shown(root)}' {became}"
            raise ClaimLostError(problem, path=root, index=self.index)

    def withdraw(self) -> None:
        """Remove this claim and what was written under it; raise nothing."""
        self.close()
        with contextlib.suppress(OSError):
            files.remove_tree(self.workspace)
        with contextlib.suppress(OSError):  # others take it over when it is stale
            found = self._files.read(self.index, self._generation)
            if found and found.record and found.record.token == self._record.token:
                files.remove(self._path)

    def release(self) -> None:
        """Remove the claim and those before it; of a lost one, only what was written under it."""
        try:
            self.close()
            try:
                self.raise_if_lost()
            except ClaimLostError:
                files.remove_tree(self.workspace)
            else:
                self._files.remove_up_to(self.index, self._generation)
        except BaseException:
            self.withdraw()
            raise

    def give_back(self) -> None:
        """Release the claim; log what can't be removed, which others take over when it is stale."""
        with clearing_up(self.index):
            self.release()

    def close(self) -> None:
        """Give the descriptor back; the claim stays."""
        fd, self._fd = self._fd, -1  # never closed twice: by then it may be another file's
        if fd >= 0:
            os.close(fd)


@contextlib.contextmanager
def clearing_up(index: int) -> Iterator[None]:
    """Log that a claim could not be removed, and go on: no work fails by what others left."""
    try:
        yield
    except OSError as error:
        logger.warning("The claim on shard %d could not be removed: %s", index, told(error))

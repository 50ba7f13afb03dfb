"""Claims: which worker is at which shard, without trusting any lock.

A claim is a file ``claims/shard_NNNNNN.GGGG.json``; of a shard's claims the highest generation
holds it. To claim is to make the next generation's file, which only one worker can (`publish`). A
claim is taken over when whoever wants the shard has *seen* it unchanged for long enough by its own
clock: the clocks of two machines are never compared. The file of the old generation stays where it
is, so that its worker, if it lives, finds the higher one beside it and knows that it lost.

What this can't do: a worker that is held up between its last look and the end of its work (stopped
by the kernel for minutes, say) may still move its outputs into place after it lost. Each file is
whole even then, and the shard is judged by receipt and sizes like any other.
"""

import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from shardproof._base import files
from shardproof._base.liveness import this_process
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_link, is_there
from shardproof.errors import ClaimLostError, ManifestError, ShardClaimedError, UnsyncedError
from shardproof.receipts.claims._claim_files import ClaimFiles, ClaimRecord, Found, encode_claim
from shardproof.receipts.plan._layout import RECEIPTS

__all__ = ["MAX_SILENCE", "Claim", "Claims"]

logger = logging.getLogger("shardproof.receipts")

MAX_SILENCE = 86_400.0
"""Most seconds for which a claim may be silent, whatever its holder says."""


class Claims:
    """The claims of one plan directory, as one worker sees them.

    Args:
        root: Real absolute path of the plan directory.
        plan_hash: The plan's.
        heartbeat: Seconds between two signs of life.
        stale_after: Seconds without one after which a claim is taken over.
        clock: What time is measured by.
    """

    def __init__(
        self,
        root: str,
        plan_hash: str,
        heartbeat: float,
        stale_after: float,
        clock: Callable[[], float],
    ) -> None:
        self.root = root
        self.files = ClaimFiles(root)
        self.plan_hash = plan_hash
        self.heartbeat = heartbeat
        self.stale_after = stale_after
        self.clock = clock
        self._seen: dict[int, tuple[Found, float]] = {}
        self._is_swept = False

    def acquire(self, index: int) -> "Claim":
        """Return a claim on a shard.

        Raises:
            ShardClaimedError: Another worker has it.
            ManifestError: The directory of claims or that of receipts is a link.
            OSError: The claim can't be written, and none is left.
        """
        self._sweep()
        earlier = self.files.holder(index)
        if earlier is not None and not self._is_abandoned(index, earlier):
            raise _claimed(self.root, index, earlier.owner)
        claim = Claim(self, index, self.files.generation_after(index, earlier))
        try:
            if not claim.publish():
                raise _claimed(self.root, index, "a worker that was faster")
            if earlier is not None and not self._is_unchanged(index, earlier):
                # It lives, or gave the shard back and somebody else has it.
                raise _claimed(self.root, index, earlier.owner)
            return claim
        except BaseException:
            claim.withdraw()
            raise

    def generations(self) -> dict[int, int]:
        """Return the highest generation of each shard that is claimed; of one listing.

        Raises:
            ManifestError: The directory of claims is a link.
            OSError: Nobody could look.
        """
        self.files.refuse_link()
        return self.files.newest()

    def refuse_held(self, index: int, generation: int) -> None:
        """Do nothing if a claim that was listed is gone, or may be taken over.

        All claims need not be listed again for each one that holds.

        Raises:
            ShardClaimedError: Another worker has the shard.
            OSError: Nobody could look.
        """
        found = self.files.read(index, generation)
        if found is not None and not self._is_abandoned(index, found):
            raise _claimed(self.root, index, found.owner)

    def undecided(self, indices: Iterable[int]) -> dict[int, Found]:
        """Return the claims, as last seen, of which only time tells whether their holders live.

        A holder on this machine is not among them: it was looked for, and found alive.
        """
        seen = {index: self._seen[index][0] for index in indices if index in self._seen}
        return {index: found for index, found in seen.items() if not found.is_here}

    def silent(self, first: Mapping[int, Found], indices: Iterable[int]) -> list[int]:
        """Return the undecided shards whose claims have not changed since the first look."""
        now = self.undecided(indices)
        return [index for index, found in now.items() if found == first.get(index)]

    def orphans(self) -> Iterator[tuple[int, Found]]:
        """Yield the claimed shards whose holder surely runs no more, and its claim.

        What such holders were writing is removed, also where no shard is left to be claimed.
        """
        if is_there(self.files.directory):
            self._sweep()
        for index, generation in self.generations().items():
            found = None
            with _clearing_up(index):
                found = self.files.read(index, generation)
            if found is not None and found.is_dead:
                yield index, found

    def bury(self, index: int, dead: Found) -> None:
        """Remove a dead claim on a shard that is done, those before it, and what they left.

        While its file is there, every claim that is made is a later one, which stays. Where it is
        gone, somebody cleared up after it, and what is there now is another worker's. What may not
        be removed, as another user's, stays.
        """
        with _clearing_up(index):
            if self._is_unchanged(index, dead):
                self.remove_up_to(index, dead.generation)

    def remove_up_to(self, index: int, generation: int) -> None:
        """Remove a shard's claims up to a generation, the highest last, and their directories."""
        for found, path in self.files.workspaces_of(index):
            if found <= generation:
                files.remove_tree(path)
        for found, path in self.files.files_of(index):
            if found <= generation:
                files.remove(path)

    def pause(self) -> None:
        """Let others work for a while."""
        time.sleep(min(1.0, self.heartbeat))

    def _sweep(self) -> None:
        """Once: make the directories, and remove what writers left that were killed."""
        self.files.refuse_link()
        receipts = os.path.join(self.root, RECEIPTS)
        if is_link(receipts):
            problem = "expected a directory of receipts, found a symbolic link; move it away"
            raise ManifestError(problem, path=receipts)
        if not self._is_swept:
            for directory in (self.files.directory, receipts):
                files.make_directories(directory)
                files.sweep_leftovers(directory)
            self._is_swept = True

    def _is_abandoned(self, index: int, found: Found) -> bool:
        """Whether its worker is gone, or showed no sign of life for as long as was looked."""
        if found.is_dead:
            return True
        seen, since = self._seen.get(index, (None, 0.0))
        now = self.clock()
        if seen != found:
            self._seen[index] = found, now
            return False
        silence = found.record.stale_after if found.record else 0.0
        return now - since >= max(self.stale_after, min(silence, MAX_SILENCE))

    def _is_unchanged(self, index: int, earlier: Found) -> bool:
        return self.files.read(index, earlier.generation) == earlier


class Claim:
    """One worker's claim on one shard.

    Args:
        claims: The claims of the plan directory.
        index: The shard.
        generation: One more than the claim before it.
    """

    def __init__(self, claims: Claims, index: int, generation: int) -> None:
        self.claims = claims
        self.index = index
        self.generation = generation
        self._path = claims.files.path_of(index, generation)
        self._fd = -1
        self._record = ClaimRecord(
            shard_index=index,
            plan_hash=claims.plan_hash,
            token=secrets.token_hex(16),
            owner=_owner(),
            process=this_process(),
            claimed_at=time.time(),
            stale_after=claims.stale_after,
        )
        self.workspace = self._path.removesuffix("json") + self._record.token

    def publish(self) -> bool:
        """Make the claim's file; False where another worker did.

        Where it raises, the file may be there: `withdraw` takes it back.
        """
        try:
            is_made = files.publish(self._path, encode_claim(self._record))
        except UnsyncedError:
            is_made = True  # after a power cut, nobody works under it any more
        if is_made:
            # Kept open: whatever comes under this name later, signs of life go to this claim alone.
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        return is_made

    def beat(self) -> None:
        """Show life, if the claim still holds.

        Raises:
            ClaimLostError: It doesn't.
            OSError: The file system failed.
        """
        self.check()
        self._record = msgspec.structs.replace(self._record, beat=self._record.beat + 1)
        files.rewrite(self._fd, encode_claim(self._record))

    def check(self) -> None:
        """Do nothing if the claim still holds.

        Raises:
            ClaimLostError: Another worker took the shard over, or the claim's file is gone.
            OSError: The file system failed.
        """
        holder = self.claims.files.holder(self.index)
        if holder is None or holder.record is None or holder.record.token != self._record.token:
            by = shown(holder.owner, 300) if holder else "nobody: its file is gone"
            raise ClaimLostError(
                f"shard {self.index} of '{shown(self.claims.root)}' was taken over by {by}"
            )

    def withdraw(self) -> None:
        """Remove this claim, if it was made, with what was written under it, and nothing else."""
        self.close()
        with contextlib.suppress(OSError):
            files.remove_tree(self.workspace)
        with contextlib.suppress(OSError):  # others take it over when it is stale
            found = self.claims.files.read(self.index, self.generation)
            if found and found.record and found.record.token == self._record.token:
                files.remove(self._path)

    def release(self) -> None:
        """Remove the claim, and what claims before it left behind; if it was lost, nothing else.

        Raises:
            OSError: Something could not be removed; the claim itself is, as far as that goes.
        """
        try:
            self.close()
            self._remove()
        except BaseException:
            self.withdraw()
            raise

    def _remove(self) -> None:
        try:
            self.check()
        except ClaimLostError:
            files.remove_tree(self.workspace)
            return
        self.claims.remove_up_to(self.index, self.generation)

    def give_back(self) -> None:
        """Do as `release`; what can't be removed is told of, and taken over when it is stale."""
        try:
            self.release()
        except OSError as error:
            _tell(self.index, error)

    def close(self) -> None:
        """Give the descriptor back; the claim stays."""
        fd, self._fd = self._fd, -1  # never closed twice: by then it may be another file's
        if fd >= 0:
            os.close(fd)


@contextlib.contextmanager
def _clearing_up(index: int) -> Iterator[None]:
    """Tell of what fails, and go on: no work fails by what others left."""
    try:
        yield
    except OSError as error:
        _tell(index, error)


def _tell(index: int, error: OSError) -> None:
    logger.warning("The claim on shard %d could not be removed: %s", index, told(error))


def _owner() -> str:
    return f"uid {os.geteuid()} on {socket.gethostname()[:200]}, process {os.getpid()}"


def _claimed(root: str, index: int, owner: str) -> ShardClaimedError:
    return ShardClaimedError(f"shard {index} of '{shown(root)}': claimed by {shown(owner, 300)}")

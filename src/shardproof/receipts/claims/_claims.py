"""Claims: which worker is at which shard, without trusting any lock.

A claim is a file ``claims/shard_NNNNNN.GGGG.json``; of a shard's claims the highest generation
holds it. To claim is to make the next generation's file, which only one worker can (`publish`). A
claim is taken over when a worker that wants the shard has *seen* it unchanged for long enough by
its own clock: the clocks of two machines are never compared. The old generation's file stays where
it is, so that its worker, if it lives, finds the higher one beside it and knows that it lost.

What this can't do: a worker that is held up between its last look and the end of its work (stopped
by the kernel for minutes, say) may still move its outputs into place after it lost. Each file is
whole even then, and the shard is judged by receipt and sizes like any other.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from shardproof._base import files
from shardproof._base.liveness import ObservedSilence
from shardproof._base.messages import shown
from shardproof._base.opening import is_link, is_there
from shardproof.errors import ManifestError, ShardClaimedError
from shardproof.receipts.claims._claim import Claim, clearing_up
from shardproof.receipts.claims._claim_files import LAST_GENERATION, ClaimFiles, ObservedClaim
from shardproof.receipts.plan._directories import RECEIPTS, PlanHeader

_MAX_SILENCE = 86_400.0
"""Most seconds for which a claim may be silent, whatever its holder says."""


def refuse_times(heartbeat: float, stale_after: float) -> None:
    """Raise `ValueError` if a worker that lives could be taken for a dead one, or a dead one stay.

    NaN is between no two numbers.
    """
    if not 0 < 3 * heartbeat <= stale_after <= _MAX_SILENCE:
        problem = f"expected 0 < 3 * heartbeat <= stale_after <= {_MAX_SILENCE:.0f}"
        raise ValueError(f"{problem}, found {heartbeat} and {stale_after}")


class Claims:
    """The claims of one plan directory, as one worker sees them; times are seconds by ``clock``."""

    def __init__(
        self,
        header: PlanHeader,
        heartbeat: float,
        stale_after: float,
        clock: Callable[[], float],
    ) -> None:
        self._header = header
        self._heartbeat = heartbeat
        self._stale_after = stale_after
        self._files = ClaimFiles(header.root)
        self._silence: ObservedSilence[int, ObservedClaim] = ObservedSilence(clock)
        self._is_swept = False

    def acquire(self, index: int) -> "Claim":
        """Return a claim on a shard; raise `ShardClaimedError` where another worker has it.

        No claim is left where it raises.
        """
        self._sweep()
        earlier = self._files.holder(index)
        if earlier is not None and not self._is_abandoned(index, earlier):
            raise self._claimed(index, earlier.owner)
        generation = 1 if earlier is None else earlier.generation + 1
        if generation > LAST_GENERATION:  # a file of the last one was made by hand
            problem = f"expected generations below {LAST_GENERATION}; move this file away"
            raise OSError(errno.EINVAL, problem, self._files.path_of(index, generation - 1))
        plan_hash, stale_after = self._header.plan_hash, self._stale_after
        claim = Claim(self._files, index, generation, plan_hash=plan_hash, stale_after=stale_after)
        try:
            if not claim.publish():
                raise self._claimed(index, "a worker that was faster")
            if earlier is not None and not self._is_unchanged(index, earlier):
                # Its worker lives, or gave the shard back, and another worker has it.
                raise self._claimed(index, earlier.owner)
            return claim
        except BaseException:
            claim.withdraw()
            raise

    def generations(self) -> dict[int, int]:
        """Return the highest generation of each shard that is claimed."""
        return self._files.newest()

    def refuse_held(self, index: int, generation: int) -> None:
        """Raise `ShardClaimedError` if a claim that was listed still holds a shard."""
        # It reads that one claim: all of them need not be listed again for each shard.
        found = self._files.read(index, generation)
        if found is not None and not self._is_abandoned(index, found):
            raise self._claimed(index, found.owner)

    def undecided(self, indices: Iterable[int]) -> dict[int, ObservedClaim]:
        """Return the claims, as last seen, of which only time tells whether their holders live.

        A holder on this machine is not among them: it was looked for, and found alive.
        """
        seen = ((index, self._silence.last(index)) for index in indices)
        return {index: found for index, found in seen if found is not None and not found.is_here}

    def silent(self, first: Mapping[int, ObservedClaim], indices: Iterable[int]) -> list[int]:
        """Return the undecided shards whose claims have not changed since the first look."""
        now = self.undecided(indices)
        return [index for index, found in now.items() if found == first.get(index)]

    def orphans(self) -> Iterator[tuple[int, ObservedClaim]]:
        """Yield the claimed shards whose holder surely runs no more, and its claim.

        What such holders were writing is removed, also where no shard is left to be claimed.
        """
        if is_there(self._files.directory):
            self._sweep()
        for index, generation in self.generations().items():
            found = None
            with clearing_up(index):
                found = self._files.read(index, generation)
            if found is not None and found.is_dead:
                yield index, found

    def bury(self, index: int, dead: ObservedClaim) -> None:
        """Remove a dead claim on a shard that is done, those before it, and what they left.

        While its file is there, every claim that is made is a later one, which stays. Where it is
        gone, another worker cleared up after it, and what is there now is that one's. What may not
        be removed, as another user's, stays.
        """
        with clearing_up(index):
            if self._is_unchanged(index, dead):
                self._files.remove_up_to(index, dead.generation)

    def pause(self) -> None:
        """Sleep until another look at the claims of others is worthwhile."""
        time.sleep(min(1.0, self._heartbeat))

    def _sweep(self) -> None:
        """Make the directories, and remove what killed writers left; once."""
        self._files.refuse_link()
        receipts = os.path.join(self._header.root, RECEIPTS)
        if is_link(receipts):
            problem = "expected a directory of receipts, found a symbolic link; move it away"
            raise ManifestError(problem, path=receipts)
        if not self._is_swept:
            for directory in (self._files.directory, receipts):
                files.make_directories(directory)
                files.sweep_leftovers(directory)
            self._is_swept = True

    def _is_abandoned(self, index: int, found: ObservedClaim) -> bool:
        """Whether its worker is gone, or showed no sign of life for as long as was looked."""
        if found.is_dead:
            return True
        allowed = found.record.stale_after if found.record else 0.0
        longest = max(self._stale_after, min(allowed, _MAX_SILENCE))
        return self._silence.seconds(index, found) >= longest

    def _is_unchanged(self, index: int, earlier: ObservedClaim) -> bool:
        return self._files.read(index, earlier.generation) == earlier

    def _claimed(self, index: int, owner: str) -> ShardClaimedError:
        root = self._header.root
        problem = f"shard {index} of '{shown(root)}': claimed by {shown(owner, 300)}"
        return ShardClaimedError(problem, path=root, index=index)

"""Claims: which worker is at which shard; each is a hold (`_base.holds`) of its own name."""

import contextlib
import functools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from shardproof._base import files
from shardproof._base.arguments import checked
from shardproof._base.holds import MAX_SILENCE, Hold, HoldWatch, ObservedHold, observe
from shardproof._base.messages import shown, told
from shardproof._base.names import real_root
from shardproof._base.opening import is_there, names_in, refuse_no_path
from shardproof.errors import ClaimLostError, ShardClaimedError
from shardproof.receipts._directories import CLAIMS, RECEIPTS, folder_in, read_header

logger = logging.getLogger("shardproof.receipts")

_NAME = re.compile(r"shard_([0-9]{6})\.(?:json|([0-9a-f]{32}))")

_COMPARED_SECONDS = 0.1
"""More than a removal takes to give a claim its name again that is not the one it was told of."""


def refuse_times(heartbeat: float, stale_after: float) -> None:
    """Refuse times by which a living worker could be taken for dead, or a dead one stay."""
    if not 0 < 3 * heartbeat <= stale_after <= MAX_SILENCE:
        problem = f"expected 0 < 3 * heartbeat <= stale_after <= {MAX_SILENCE:.0f}"
        raise ValueError(f"{problem}, found {heartbeat} and {stale_after}")


class Claim:
    """One worker's claim on a shard; in the directory beside it, ``workspace``, it alone writes."""

    def __init__(self, root: str, index: int, stale_after: float) -> None:
        self.index = index
        self._root = root
        self._hold = Hold(_path_of(root, index), stale_after=stale_after)
        self.workspace = _workspace_of(self._hold.path, self._hold.token)

    def publish(self) -> bool:
        """Make the claim; False where another worker has the shard."""
        return self._hold.publish()

    def beat(self) -> None:
        """Show life once; raises as `raise_if_lost`."""
        if not self._hold.show_life():
            self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise `ClaimLostError` if another worker took the shard over, or the file is gone."""
        found = observe(self._hold.path)
        if found is None:  # perhaps another worker compares it with what it was to remove
            time.sleep(_COMPARED_SECONDS)
            found = observe(self._hold.path)
        if self._hold.is_of(found):
            return
        became = "is no longer claimed: the claim's file is gone"
        if found is not None:
            became = f"was taken over by {shown(found.owner, 300)}"
        problem = f"shard {self.index} of '{shown(self._root)}' {became}"
        raise ClaimLostError(problem, path=self._root, index=self.index)

    def give_back(self) -> None:
        """Remove the claim and what was written under it, as far as possible."""
        for clear in (functools.partial(files.remove_tree, self.workspace), self._hold.give_back):
            try:
                clear()
            except OSError:
                with _clearing_up(self.index):
                    clear()  # what failed once may work now


def _path_of(root: str, index: int) -> str:
    return os.path.join(root, CLAIMS, f"shard_{index:06d}.json")


def _workspace_of(path: str, token: str) -> str:
    return f"{path.removesuffix('json')}{token}"


@contextlib.contextmanager
def _clearing_up(index: int) -> Iterator[None]:
    """Log that a claim could not be removed, and go on: no work fails by what others left."""
    try:
        yield
    except OSError as error:
        logger.warning("The claim on shard %d could not be removed: %s", index, told(error))


class Claims:
    """The claims of one plan directory, as one worker sees them; times are seconds by ``clock``."""

    def __init__(
        self, root: str, heartbeat: float, stale_after: float, clock: Callable[[], float]
    ) -> None:
        self._root, self._directory = root, os.path.join(root, CLAIMS)
        self._heartbeat, self._stale_after = heartbeat, stale_after
        self._watch = HoldWatch(stale_after, clock)
        self._is_swept = False

    def acquire(self, index: int) -> Claim:
        """Return a claim on a shard; raise `ShardClaimedError` where another worker has it."""
        self._prepare()
        found = observe(_path_of(self._root, index))
        if found is not None:
            if not self._watch.is_over(found):
                raise self._claimed(index, found.owner)
            try:
                self._remove(found)
            except PermissionError as error:  # another user's, in a directory like /tmp
                raise self._claimed(index, found.owner) from error
        claim = Claim(self._root, index, self._stale_after)
        try:
            if claim.publish():
                return claim
            raise self._claimed(index, "a worker that was faster")
        except BaseException:
            claim.give_back()
            raise

    def refuse_lost(self, claim: Claim) -> None:
        """Raise `ShardClaimedError` where one that took a dead worker's shard was too late."""
        try:
            claim.raise_if_lost()
        except ClaimLostError as error:
            raise self._claimed(claim.index, "a worker that was faster") from error

    def sweep(self) -> None:
        """Remove what workers left that surely run no more, or whose shards are nobody's now."""
        if not is_there(self._directory):
            return
        self._prepare()
        # Workspaces first: of one that is there now, the claim was there before.
        for match in filter(None, map(_NAME.fullmatch, sorted(names_in(self._directory)))):
            index, token = int(match[1]), match[2]
            with _clearing_up(index):
                found = observe(_path_of(self._root, index))
                if found is not None and found.is_dead:
                    self._remove(found)
                elif found is None and token:
                    files.remove_tree(os.path.join(self._directory, match[0]))

    def undecided(self, indices: Iterable[int]) -> dict[int, ObservedHold]:
        """Return the claims, as last seen, of which only time tells whether their holders live."""
        seen = ((index, self._watch.last(_path_of(self._root, index))) for index in indices)
        return {index: found for index, found in seen if found is not None and not found.is_here}

    def silent(self, first: Mapping[int, ObservedHold], indices: Iterable[int]) -> list[int]:
        """Return the undecided shards whose claims have not changed since the first look."""
        now = self.undecided(indices)
        return [index for index, found in now.items() if found == first.get(index)]

    def pause(self) -> None:
        """Sleep until another look at the claims of others is worthwhile."""
        time.sleep(min(1.0, self._heartbeat))

    def _remove(self, found: ObservedHold) -> None:
        # A worker that is only silent may live, and still write where it was told to.
        if found.remove() and found.record and found.is_dead:
            files.remove_tree(_workspace_of(found.path, found.record.token))

    def _prepare(self) -> None:
        """Make the directories, and remove what killed writers left; once."""
        directories = [folder_in(self._root, name) for name in (CLAIMS, RECEIPTS)]
        if not self._is_swept:
            for directory in directories:
                files.make_directories(directory)
                files.sweep_leftovers(directory)
            self._is_swept = True

    def _claimed(self, index: int, owner: str) -> ShardClaimedError:
        problem = f"shard {index} of '{shown(self._root)}': claimed by {shown(owner, 300)}"
        return ShardClaimedError(problem, path=self._root, index=index)


@checked
def claims_in(plan_dir: str | os.PathLike[str]) -> Iterator[tuple[int, ObservedHold]]:
    """Yield for each shard of a plan directory that is claimed its number and its worker's hold.

    Raises:
        ManifestNotFoundError: There is no ``plan.json``.
        ManifestError: It can't be read, or the directory of claims is a link.
        OSError: It could not be checked (EIO, ESTALE, ...).

    Example:
        >>> import shardproof
        >>> from shardproof import receipts
        >>> with shardproof.ReceiptStore(plan_dir).claim(1) as work:
        ...     work.mark_empty()
        ...     for index, claim in receipts.claims_in(plan_dir):
        ...         print(index, claim.is_dead)
        1 False
    """
    refuse_no_path(plan_dir=plan_dir)
    root = real_root(plan_dir)  # now: the current directory may be another one later
    read_header(root)
    matches = map(_NAME.fullmatch, sorted(names_in(folder_in(root, CLAIMS))))
    indices = [int(match[1]) for match in matches if match and not match[2]]
    seen = ((index, observe(_path_of(root, index))) for index in indices)
    return ((index, found) for index, found in seen if found is not None)

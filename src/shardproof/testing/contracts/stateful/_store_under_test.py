"""How the machine works a store: by default `shardproof.ReceiptStore`, or one of your own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardproof.testing.samples._directories import write_layout
from shardproof.testing.samples._layout import Layout


class StoreUnderTest:
    """What `ReceiptsMachine` does with a store; each method may be overridden.

    Attributes:
        stale_after: Seconds without a sign of life, after which a claim may be taken over.
    """

    stale_after = 36_000.0

    def new_plan(self, base: Path, n_shards: int, seed: int) -> Path:
        """Make a plan of which nothing is done, and return its directory.

        Args:
            base: The output directory, which all plans of a run share.
            n_shards: How many shards.
            seed: Another one makes another plan.
        """
        value = Layout(n_shards, format="receipts", seed=seed, absent=range(n_shards))
        return write_layout(value, base)

    def open_store(self, path: Path, clock: Callable[[], float]) -> Any:
        """Return a store as a new worker opens it.

        Args:
            path: What `new_plan` returned.
            clock: In the place of `time.monotonic`; it runs hours ahead while the test lasts
                milliseconds.
        """
        from shardproof import ReceiptStore  # noqa: PLC0415 - not where another is judged

        heartbeat = self.stale_after / 3  # no thread gets to show life within the test
        return ReceiptStore(path, heartbeat=heartbeat, stale_after=self.stale_after, _clock=clock)

    def pending(self, store: Any) -> Sequence[int]:
        """Return the shards that are left to do, ascending."""
        pending: Sequence[int] = store.pending()
        return pending

    def is_completed(self, store: Any, index: int) -> bool:
        """Return whether one shard is done."""
        return bool(store.is_completed(index))

    def claim(self, store: Any, index: int) -> Any:
        """Claim a shard; return what the methods below take, or None if refused."""
        from shardproof import ShardClaimedError, ShardCompletedError  # noqa: PLC0415 - as above

        try:
            return store.claim(index)
        except (ShardClaimedError, ShardCompletedError):
            return None

    def begin(self, work: Any) -> bool:
        """Begin what was claimed, now or much later; return False if the claim was lost since."""
        from shardproof import ClaimLostError  # noqa: PLC0415 - as above

        try:
            work.__enter__()
        except ClaimLostError:
            return False
        return True

    def write(self, work: Any, name: str, content: bytes) -> None:
        """Write an output; where the claim was lost, any exception will do."""
        work.output(name).write_bytes(content)

    def complete(self, work: Any) -> bool:
        """End the work as completed; return False if the claim was found to be lost."""
        from shardproof import ClaimLostError  # noqa: PLC0415 - as above

        try:
            work.__exit__(None, None, None)
        except ClaimLostError:
            return False
        return True

    def fail(self, work: Any, error: BaseException) -> None:
        """End the work by an exception; a KeyboardInterrupt is how a scheduler stops a job."""
        work.__exit__(type(error), error, error.__traceback__)

    def crash(self, work: Any) -> None:
        """End the work as SIGKILL does: on disk all stays as it is, and no sign of life comes."""
        work.abandon()

    def output_names(self, index: int) -> Sequence[str]:
        """Return the names of a shard's outputs, relative to the plan directory."""
        return f"shard_{index:06}.bin", f"shard_{index:06}.idx"

    def receipt_file(self, path: Path, index: int) -> Path:
        """Return where a shard's receipt is, or will be."""
        return path / "receipts" / f"shard_{index:06}.json"

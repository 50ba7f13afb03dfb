"""Signs of life, from a thread, for as long as a claim is worked on."""

import logging
import threading

from shardproof._base import threads
from shardproof._base.messages import told
from shardproof._base.threads import Stop
from shardproof.errors import ClaimLostError
from shardproof.receipts.claims._claims import Claim

__all__ = ["Heartbeat"]

logger = logging.getLogger("shardproof.receipts")


class Heartbeat:
    """Shows life every few seconds, until it is stopped or the claim is lost.

    Args:
        claim: Whose life.

    Attributes:
        lost: Why the claim no longer holds; None while it does.
    """

    def __init__(self, claim: Claim) -> None:
        self.lost: ClaimLostError | None = None
        self._claim = claim
        self._stopped = Stop()
        name = f"shardproof-claim-{claim.index}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        threads.start(self._thread, self._stopped)

    def stop(self) -> None:
        """Show no more life; the thread is joined.

        But not by itself: a claim that nobody has any more is closed wherever the collector runs.
        """
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while self.lost is None and not self._stopped.wait(self._claim.claims.heartbeat):
            try:
                self._claim.beat()
            except ClaimLostError as error:
                logger.warning("What this worker does for it no longer counts: %s", told(error))
                self.lost = error
            except OSError as error:
                # The next one may succeed; if none does, others take the shard over.
                logger.warning("No sign of life of shard %d: %s", self._claim.index, told(error))

"""Which worker is at which shard, without a lock.

The command line enters here, to show who is at what.
"""

from shardproof.receipts.claims._claim_files import ObservedClaim, claims_in

__all__ = ["ObservedClaim", "claims_in"]

"""Whether a shard is done, and why not; what a plan directory promises.

The format's adapter enters here, to read a plan directory as it reads any other.
"""

from shardproof.receipts.verdict._plan_receipts import read_manifest

__all__ = ["read_manifest"]

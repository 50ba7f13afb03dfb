"""Read checkpoints: to load them, to verify them, and for `shardproof.formats`, their manifest."""

from shardproof.checkpoint.read._directories import read_manifest

__all__ = ["read_manifest"]

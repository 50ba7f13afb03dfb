"""Verify checkpoints; and for `shardproof.formats`, read what a directory of them promises."""

from shardproof.checkpoint.verify._directories import read_manifest

__all__ = ["read_manifest"]

"""Verify checkpoints; and for `shardproof.formats`, read what a directory of them promises."""

from shardproof.checkpoint.verify._manifest import read_manifest

__all__ = ["read_manifest"]

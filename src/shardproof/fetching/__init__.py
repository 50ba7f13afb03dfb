"""Fetch shards whole and proven, ahead of the reader, and forget them after it."""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)

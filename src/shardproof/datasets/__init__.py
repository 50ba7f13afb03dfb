"""Rows and tokens, shard by shard, on top of what fetches them."""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)

"""Checkpoints of many ranks: written in parallel, proven, loaded together or alone."""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)

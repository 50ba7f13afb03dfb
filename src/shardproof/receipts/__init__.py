"""Plans, receipts and claims: a resumed data-prep run repeats nothing and loses nothing."""

from shardproof._base.imports import attached

__all__, __getattr__, __dir__ = attached(__name__)

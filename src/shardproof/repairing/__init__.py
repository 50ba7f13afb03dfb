"""Repair a directory: want, fetch beside and prove, exchange; all else is left alone."""

from shardproof.repairing._repair import Repair, Replacement, repair

__all__ = ["Repair", "Replacement", "repair"]

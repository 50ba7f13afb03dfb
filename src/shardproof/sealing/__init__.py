"""Seal a directory: write down the digests of its files once, so that `valid` proves them."""

from shardproof.sealing._seal import Seal, SealAlgorithm, seal

__all__ = ["Seal", "SealAlgorithm", "seal"]

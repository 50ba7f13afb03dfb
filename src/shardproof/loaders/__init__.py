"""Proven shards, delivered: in order, shuffled, by number."""

from shardproof.loaders._indexed import IndexedDataset
from shardproof.loaders._ordered import OrderedDataLoader
from shardproof.loaders._shuffled import ShuffledDataLoader
from shardproof.loaders.io._source import UNLABELLED, Batch

__all__ = ["UNLABELLED", "Batch", "IndexedDataset", "OrderedDataLoader", "ShuffledDataLoader"]

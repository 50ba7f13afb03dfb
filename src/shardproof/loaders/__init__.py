"""Loaders of proven shards: in order, shuffled, or by number."""

from shardproof.loaders._indexed import IndexedDataset
from shardproof.loaders._ordered import OrderedDataLoader
from shardproof.loaders._shuffled import ShuffledDataLoader
from shardproof.loaders.io._row_source import UNLABELLED, Batch

__all__ = ["UNLABELLED", "Batch", "IndexedDataset", "OrderedDataLoader", "ShuffledDataLoader"]

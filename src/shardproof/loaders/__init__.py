"""Loaders of proven shards: in order, shuffled, or by number."""

from shardproof.loaders._batch_loaders import OrderedDataLoader, ShuffledDataLoader
from shardproof.loaders._indexed import IndexedDataset
from shardproof.loaders.io._row_source import UNLABELLED, Batch

__all__ = ["UNLABELLED", "Batch", "IndexedDataset", "OrderedDataLoader", "ShuffledDataLoader"]

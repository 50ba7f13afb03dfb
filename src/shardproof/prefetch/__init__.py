"""Fetch shards whole and proven, ahead of the reader, and forget them after it."""

from shardproof.prefetch._adopt import adopt
from shardproof.prefetch._prefetcher import ShardPrefetcher
from shardproof.prefetch._stats import PrefetchEvent, PrefetchStats
from shardproof.prefetch.rows import (
    HubSpec,
    ResumePlan,
    ShardedRows,
    TextSpec,
    hf_load_dataset_sharded,
    load_dataset_from_spec,
    parse_dataset_specs,
    resolve_resume_plan,
)
from shardproof.prefetch.sources import (
    CallableSource,
    Cut,
    Delivery,
    FsspecSource,
    HttpSource,
    HubSource,
    RemoteFile,
    Source,
    open_source,
    split_name,
)
from shardproof.prefetch.tokens import ShardedDatasetManager, SharedShardedDataset, sequence_id
from shardproof.prefetch.transfer import Fetched, Limits, fetch_shard

__all__ = [
    "CallableSource",
    "Cut",
    "Delivery",
    "Fetched",
    "FsspecSource",
    "HttpSource",
    "HubSource",
    "HubSpec",
    "Limits",
    "PrefetchEvent",
    "PrefetchStats",
    "RemoteFile",
    "ResumePlan",
    "ShardPrefetcher",
    "ShardedDatasetManager",
    "ShardedRows",
    "SharedShardedDataset",
    "Source",
    "TextSpec",
    "adopt",
    "fetch_shard",
    "hf_load_dataset_sharded",
    "load_dataset_from_spec",
    "open_source",
    "parse_dataset_specs",
    "resolve_resume_plan",
    "sequence_id",
    "split_name",
]

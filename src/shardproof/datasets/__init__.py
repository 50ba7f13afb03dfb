"""Rows and tokens, shard by shard, on top of what fetches them."""

import shardproof.fetching  # noqa: F401 - before its inner rooms, each of which would wait for it
from shardproof.datasets.rows import (
    HubSpec,
    ResumePlan,
    ShardedRows,
    TextSpec,
    hf_load_dataset_sharded,
    load_dataset_from_spec,
    parse_dataset_specs,
    resolve_resume_plan,
)
from shardproof.datasets.tokens import (
    ShardedDatasetManager,
    SharedShardedDataset,
    TokenFiles,
    sequence_id,
)

__all__ = [
    "HubSpec",
    "ResumePlan",
    "ShardedDatasetManager",
    "ShardedRows",
    "SharedShardedDataset",
    "TextSpec",
    "TokenFiles",
    "hf_load_dataset_sharded",
    "load_dataset_from_spec",
    "parse_dataset_specs",
    "resolve_resume_plan",
    "sequence_id",
]

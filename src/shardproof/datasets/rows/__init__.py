"""Rows of datasets, shard by shard."""

from shardproof.datasets.rows._datasets import (
    hf_load_dataset_sharded,
    load_dataset_from_spec,
    resolve_resume_plan,
)
from shardproof.datasets.rows._rows import ShardedRows
from shardproof.datasets.rows._shard_lists import ResumePlan
from shardproof.datasets.rows._specs import HubSpec, TextSpec, parse_dataset_specs

__all__ = [
    "HubSpec",
    "ResumePlan",
    "ShardedRows",
    "TextSpec",
    "hf_load_dataset_sharded",
    "load_dataset_from_spec",
    "parse_dataset_specs",
    "resolve_resume_plan",
]

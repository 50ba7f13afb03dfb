"""Rows of datasets, shard by shard."""

from shardproof.prefetch.rows._datasets import (
    hf_load_dataset_sharded,
    load_dataset_from_spec,
    resolve_resume_plan,
)
from shardproof.prefetch.rows._resume import ResumePlan
from shardproof.prefetch.rows._rows import ShardedRows
from shardproof.prefetch.rows._specs import HubSpec, TextSpec, parse_dataset_specs

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

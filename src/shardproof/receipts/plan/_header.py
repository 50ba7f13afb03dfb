"""The header of a plan: name, number of shards, kinds of outputs; read without the files."""

import os

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof.errors import ManifestError
from shardproof.receipts.plan._layout import (
    MAX_HASH,
    MAX_KINDS,
    MAX_PLAN_BYTES,
    MAX_SHARDS,
    PLAN_FILE,
)

__all__ = ["PlanHeader", "read_header", "refuse_version"]


class PlanHeader(msgspec.Struct, frozen=True):
    """A plan, without what its shards are made of.

    Attributes:
        plan_hash: The plan's name.
        n_shards: How many shards there are.
        dataset_name: The data set.
        run_hash: The run that it is part of; no text where the plan doesn't say.
        kinds: The kinds of outputs that each shard owes; none where the plan doesn't say.
        version: Of the file's form.
    """

    plan_hash: str
    n_shards: int = msgspec.field(name="num_shards")
    dataset_name: str = ""
    run_hash: str = ""
    kinds: tuple[str, ...] = ()
    version: str = "1.0"


def read_header(root: str) -> PlanHeader:
    """Return what a plan says of itself.

    Raises:
        ManifestNotFoundError: There is no plan.
        ManifestError: It can't be read, or is of a form that is not known.
        OSError: The file system failed.
    """
    header = json.read(root, PLAN_FILE, PlanHeader, max_bytes=MAX_PLAN_BYTES)
    refuse_version(header.version, root)
    path = os.path.join(root, PLAN_FILE)
    if len(header.plan_hash) > MAX_HASH:
        problem = f"expected at most {MAX_HASH} characters, found {len(header.plan_hash)}"
        raise ManifestError(problem, path=path, field="$.plan_hash")
    if not 1 <= header.n_shards <= MAX_SHARDS:
        problem = f"expected 1 to {MAX_SHARDS} shards, found {header.n_shards}"
        raise ManifestError(problem, path=path, field="$.num_shards")
    if len(header.kinds) > MAX_KINDS:
        problem = f"expected at most {MAX_KINDS} kinds of outputs, found {len(header.kinds)}"
        raise ManifestError(problem, path=path, field="$.kinds")
    return header


def refuse_version(version: str, root: str) -> None:
    """Raise a `ManifestError` if a plan's form is none that is known: 1.0, and what adds to it."""
    if version.partition(".")[0] != "1":
        path = os.path.join(root, PLAN_FILE)
        problem = f"expected a plan of version 1.0, found {quoted(version)}"
        raise ManifestError(problem, path=path, field="$.version")

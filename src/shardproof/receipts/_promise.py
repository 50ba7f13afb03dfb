"""What a plan directory promises: the outputs of every shard that is recorded as completed."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from shardproof import _fanout
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.receipts._done import Scope, promised, read_receipt, receipts_dir, why_foreign
from shardproof.receipts._header import read_header
from shardproof.receipts._layout import PLAN_FILE, RECEIPTS, receipt_index, receipt_name

__all__ = ["promise"]


def promise(root: str) -> Manifest:
    """Return what the receipts of a plan directory promise.

    What was only started, or failed, promises nothing. A receipt that can't be read, or belongs to
    another plan or shard, is a finding.

    Args:
        root: Real absolute path of the plan directory.

    Raises:
        ManifestNotFoundError: There is no ``plan.json``.
        ManifestError: It can't be read; or outputs have names that are refused, or are another's.
        OSError: The file system failed.
    """
    header = read_header(root)
    scope = Scope(root, header.plan_hash)
    indices = _listed(root)
    files: list[PromisedFile] = []
    damaged = [_beyond(index, header.n_shards) for index in indices if index >= header.n_shards]
    read = functools.partial(_promises, scope)
    within = [index for index in indices if index < header.n_shards]
    for _, found in _fanout.over_threads(read, within):
        for promises, problem in found:
            files += promises
            damaged += problem
    source = Path(root, PLAN_FILE)
    return Manifest(Path(root), source, "receipts", files, damaged=damaged)


def _listed(root: str) -> list[int]:
    """The shards that have a receipt."""
    try:
        names = os.listdir(receipts_dir(root))
    except FileNotFoundError:
        return []
    return sorted(index for name in names if (index := receipt_index(name)) is not None)


_Promises = tuple[list[PromisedFile], list[Contradiction]]


def _promises(scope: Scope, indices: Sequence[int]) -> list[_Promises]:
    return [_promise_of(scope, index) for index in indices]


def _promise_of(scope: Scope, index: int) -> _Promises:
    name = f"{RECEIPTS}/{receipt_name(index)}"
    try:
        receipt = read_receipt(scope.root, index)
        if foreign := why_foreign(scope, receipt, index):
            return [], [Contradiction(name, Mismatch("a receipt of this plan and shard", foreign))]
        is_done = receipt.status == "completed"
        return promised(receipt, os.path.join(scope.root, name)) if is_done else [], []
    except ManifestNotFoundError:
        return [], []
    except ManifestError as error:
        return [], [Contradiction(name, Mismatch("a receipt", error.problem))]


def _beyond(index: int, n_shards: int) -> Contradiction:
    name = f"{RECEIPTS}/{receipt_name(index)}"
    return Contradiction(name, Mismatch(f"receipts of {n_shards} shards", f"one of shard {index}"))

"""What a plan directory promises: the outputs of every shard that is recorded as completed."""

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shardproof._base import fanout
from shardproof._base.names import open_root
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.receipts.plan._header import read_header
from shardproof.receipts.plan._layout import PLAN_FILE, RECEIPTS, Scope, receipt_index, receipt_name
from shardproof.receipts.verdict._outputs import provable
from shardproof.receipts.verdict._quick import UsualFile, is_plain, usual_files
from shardproof.receipts.verdict._verdict import (
    may_not_read,
    open_receipts,
    promised,
    read_receipt,
    why_foreign,
)

__all__ = ["read_manifest"]


def read_manifest(root: str) -> Manifest:
    """Return what the receipts of a plan directory promise.

    What was only started, or failed, promises nothing. A receipt that is damaged, or belongs to
    another plan or shard, is a finding.

    Args:
        root: Real absolute path of the plan directory.

    Raises:
        ManifestNotFoundError: There is no ``plan.json``.
        ManifestError: It can't be read; or outputs have names that are refused, or are another's.
        OSError: The file system failed, or a receipt may not be read.
    """
    header = read_header(root)
    scope = Scope(root, header.plan_hash, header.kinds)
    files: list[PromisedFile] = []
    damaged: list[Contradiction] = []
    for promises, problems in _all_promises(scope, header.n_shards):
        files += promises
        damaged += problems
    return Manifest(
        root=Path(root), path=Path(root, PLAN_FILE), format="receipts", files=files, damaged=damaged
    )


_Promises = tuple[list[PromisedFile], list[Contradiction]]


def _all_promises(scope: Scope, n_shards: int) -> Iterator[_Promises]:
    root_fd = open_root(scope.root)
    try:
        with open_receipts(scope.root, root_fd) as receipts_fd:
            if receipts_fd is None:
                return
            read = functools.partial(_promises, scope, receipts_fd, n_shards)
            for _, parts in fanout.over_threads(read, _listed(receipts_fd)):
                yield from parts
    finally:
        os.close(root_fd)


def _listed(receipts_fd: int) -> list[int]:
    """Return the shards that have a receipt, ascending."""
    names = os.listdir(receipts_fd)
    return sorted(index for name in names if (index := receipt_index(name)) is not None)


def _promises(
    scope: Scope, receipts_fd: int, n_shards: int, indices: Sequence[int]
) -> list[_Promises]:
    usual = usual_files(scope, receipts_fd, indices)
    return [
        _promise_of(scope, index, files) if index < n_shards else _beyond(index, n_shards)
        for index, files in zip(indices, usual, strict=True)
    ]


def _promise_of(scope: Scope, index: int, files: Iterable[UsualFile] | None) -> _Promises:
    # A file of 0 bytes may be an empty shard's, which owes none.
    if files is None or not all(file.bytes and is_plain(file.path) for file in files):
        return _read_closely(scope, index)
    return [
        PromisedFile(name=file.path, size=file.bytes, digest=provable(file.checksum))
        for file in files
    ], []


def _read_closely(scope: Scope, index: int) -> _Promises:
    name = f"{RECEIPTS}/{receipt_name(index)}"
    try:
        receipt = read_receipt(scope.root, index)
        if foreign := why_foreign(scope, receipt, index):
            return [], [
                Contradiction(
                    name, Mismatch(expected="a receipt of this plan and shard", found=foreign)
                )
            ]
        is_done = receipt.status == "completed"
        return promised(scope, receipt, os.path.join(scope.root, name)) if is_done else [], []
    except ManifestNotFoundError:
        return [], []
    except ManifestPermissionError as error:
        raise may_not_read(error) from error
    except ManifestError as error:
        return [], [Contradiction(name, Mismatch(expected="a receipt", found=error.problem))]


def _beyond(index: int, n_shards: int) -> _Promises:
    mismatch = Mismatch(expected=f"receipts of {n_shards} shards", found=f"one of shard {index}")
    return [], [Contradiction(f"{RECEIPTS}/{receipt_name(index)}", mismatch)]

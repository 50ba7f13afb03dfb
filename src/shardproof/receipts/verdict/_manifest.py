"""What a plan directory promises: the outputs of every shard that is recorded as completed."""

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from shardproof._base import fanout
from shardproof._base.names import open_root
from shardproof._base.work import apart
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.receipts.plan._directories import (
    PLAN_FILE,
    RECEIPTS,
    PlanHeader,
    read_header,
    receipt_name,
)
from shardproof.receipts.verdict._outputs import provable
from shardproof.receipts.verdict._quick import usual_files
from shardproof.receipts.verdict._records import open_receipts
from shardproof.receipts.verdict._verdict import judge_receipt

_RECEIPT = re.compile(r"shard_([0-9]{6})\.json")

_Promises = tuple[list[PromisedFile], list[Contradiction], int]  # the last: completed


def read_manifest(root: str) -> Manifest:
    """Return what the receipts of a plan directory promise; ``root`` is its real absolute path."""
    header = read_header(root)
    files: list[PromisedFile] = []
    damaged: list[Contradiction] = []
    n_completed = 0
    root_fd = open_root(root)
    try:
        with open_receipts(root, root_fd) as receipts_fd:
            if receipts_fd is not None:
                read = functools.partial(_promises, header, receipts_fd)
                names = map(_RECEIPT.fullmatch, os.listdir(receipts_fd))
                indices = sorted(int(match[1]) for match in names if match)
                for _, parts in apart(lambda _: [*fanout.over_threads(read, indices)]):
                    for promises, problems, n_more in parts:
                        files += promises
                        damaged += problems
                        n_completed += n_more
    finally:
        os.close(root_fd)
    return Manifest(
        root=Path(root),
        path=Path(root, PLAN_FILE),
        format="receipts",
        files=files,
        damaged=damaged,
        n_to_make=0 if n_completed else header.n_shards,
    )


def _promises(header: PlanHeader, receipts_fd: int, indices: Sequence[int]) -> list[_Promises]:
    promises: list[PromisedFile] = []
    damaged: list[Contradiction] = []
    n_completed = 0

    def refuse(index: int, expected: str, found: str) -> None:
        mismatch = Mismatch(expected, found)
        damaged.append(Contradiction(f"{RECEIPTS}/{receipt_name(index)}", *mismatch))

    for index, files in zip(indices, usual_files(header, receipts_fd, indices), strict=True):
        if index >= header.n_shards:
            refuse(index, f"receipts of {header.n_shards} shards", f"one of shard {index}")
        # A file of 0 bytes may be an empty shard's, which owes none.
        elif files and all(file.bytes for file in files):
            promises += [
                PromisedFile(name=file.path, size=file.bytes, digest=provable(file.checksum))
                for file in files
            ]
            n_completed += 1
        else:
            said = judge_receipt(header, index)
            promises += said.files
            n_completed += said.status == "completed"
            if said.status == "foreign":
                refuse(index, "a receipt of this plan and shard", said.reason)
            elif said.status == "damaged":
                refuse(index, "a receipt", said.reason)
    return [(promises, damaged, n_completed)]

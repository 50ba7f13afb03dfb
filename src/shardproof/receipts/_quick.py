"""A quick look at whether shards are done, which passes over nearly all of them.

A receipt with the usual fields is decoded straight into them. That no key stands twice in it, is
seen by counting quotation marks. Whatever is unusual is left to the closer look.
"""

import os
import re
from collections.abc import Iterable, Sequence

import msgspec

from shardproof._names import OPEN_FLAGS

__all__ = ["UsualFile", "not_plainly_done", "usual_files"]


class UsualFile(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One of the files of a `_Usual` receipt."""

    path: str
    bytes: int
    checksum: str


class _Usual(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A receipt with the usual fields and no other: ours, and most of Nemotron's."""

    status: str
    plan_hash: str
    shard_index: int
    run_hash: str
    dataset_name: str
    completed_at: float
    stats: dict[str, float]
    files: dict[str, UsualFile]
    started_at: float | None = None
    schema_version: int | None = None


_USUAL_BYTES = 4096
_N_REQUIRED = 8  # fields of _Usual
_N_STRINGS = 4  # of those
_N_OF_A_FILE = 6  # its key, its three fields, and two strings
_is_plain = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.\-]{0,200}").fullmatch
_decode = msgspec.json.Decoder(_Usual).decode
_TYPE_AND_READ = 0o170444
_REGULAR_FOR_ALL = 0o100444


def usual_files(plan_hash: str, receipts_fd: int, index: int) -> Iterable[UsualFile] | None:
    """Return the files that a shard's receipt records as completed, if nothing about it is unusual.

    Usual is a receipt of this plan and shard with the usual fields, each once, and with files whose
    names are plain.

    Args:
        plan_hash: The plan's.
        receipts_fd: A descriptor of the directory of receipts.
        index: The shard.

    Returns:
        The files, one or more; None where a closer look must decide.
    """
    try:
        fd = os.open(f"shard_{index:06d}.json", OPEN_FLAGS, dir_fd=receipts_fd)
        try:
            data = os.read(fd, _USUAL_BYTES)
        finally:
            os.close(fd)
        receipt = _decode(data)
    except (OSError, ValueError):
        return None
    is_usual = (
        receipt.status == "completed"
        and receipt.plan_hash == plan_hash
        and receipt.shard_index == index
        and receipt.files
        and len(data) < _USUAL_BYTES
        and data.count(b'"') == _n_quotes(receipt)
    )
    files = receipt.files.values()
    for file in files:
        if _is_plain(file.path) is None:
            return None
    return files if is_usual else None


def not_plainly_done(
    plan_hash: str, root_fd: int, receipts_fd: int, indices: Sequence[int]
) -> list[int]:
    """Return the shards that are not done beyond doubt, at level ``complete``.

    The time of a look goes into this loop. It only ever passes over what the closer look calls
    done: a usual receipt, and outputs that are regular files which everybody may read.

    Args:
        plan_hash: The plan's.
        root_fd: A descriptor of the plan directory.
        receipts_fd: A descriptor of the directory of receipts.
        indices: The shards.
    """
    odd = []
    for index in indices:
        files = usual_files(plan_hash, receipts_fd, index)
        if files is None or not _are_there(files, root_fd):
            odd.append(index)
    return odd


def _are_there(files: Iterable[UsualFile], root_fd: int) -> bool:
    try:
        for file in files:
            status = os.stat(file.path, dir_fd=root_fd, follow_symlinks=False)
            if status.st_size != file.bytes or status.st_mode & _TYPE_AND_READ != _REGULAR_FOR_ALL:
                return False
    except OSError:
        return False
    return True


def _n_quotes(receipt: _Usual) -> int:
    """How many quotation marks the text has: two for each key and string, if no key stands twice.

    A duplicate key brings at least two more, and so does nothing else but an escaped mark.
    """
    n_keys = _N_REQUIRED + (receipt.started_at is not None) + (receipt.schema_version is not None)
    n_of_files = _N_OF_A_FILE * len(receipt.files)
    return 2 * (n_keys + _N_STRINGS + len(receipt.stats) + n_of_files)

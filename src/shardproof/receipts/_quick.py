"""A quick look at whether shards are done, which passes over nearly all of them.

A receipt with the usual fields is decoded straight into them. That no key stands twice in it, is
seen by counting quotation marks. Whatever is unusual is left to the closer look.
"""

import os
import re
from collections.abc import Sequence

import msgspec

from shardproof._names import OPEN_FLAGS

__all__ = ["not_plainly_done"]


class _File(msgspec.Struct, gc=False, forbid_unknown_fields=True):
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
    files: dict[str, _File]
    started_at: float | None = None
    schema_version: int | None = None


_USUAL_BYTES = 4096
_N_REQUIRED = 8  # fields of _Usual
_N_STRINGS = 4  # of those
_N_OF_A_FILE = 6  # its key, its three fields, and two strings
_PLAIN_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.\-]{0,200}")
_TYPE_AND_READ = 0o170444
_REGULAR_FOR_ALL = 0o100444


def not_plainly_done(
    plan_hash: str, root_fd: int, receipts_fd: int, indices: Sequence[int]
) -> list[int]:
    """Return the shards that are not done beyond doubt, at level ``complete``.

    The time of a look goes into this loop. It only ever passes over what the closer look calls
    done: a usual receipt without duplicate keys, and outputs with plain names, which are regular
    files that everybody may read.

    Args:
        plan_hash: The plan's.
        root_fd: A descriptor of the plan directory.
        receipts_fd: A descriptor of the directory of receipts.
        indices: The shards.
    """
    decode = msgspec.json.Decoder(_Usual).decode
    open_, read, close, stat, plain = os.open, os.read, os.close, os.stat, _PLAIN_NAME.fullmatch
    odd = []
    for index in indices:
        try:
            fd = open_(f"shard_{index:06d}.json", OPEN_FLAGS, dir_fd=receipts_fd)
            try:
                data = read(fd, _USUAL_BYTES)
            finally:
                close(fd)
            receipt = decode(data)
            if (
                receipt.status == "completed"
                and receipt.plan_hash == plan_hash
                and receipt.shard_index == index
                and receipt.files
                and len(data) < _USUAL_BYTES
                and data.count(b'"') == _n_quotes(receipt)
            ):
                for file in receipt.files.values():
                    if plain(file.path) is None:
                        break
                    status = stat(file.path, dir_fd=root_fd, follow_symlinks=False)
                    if (
                        status.st_size != file.bytes
                        or status.st_mode & _TYPE_AND_READ != _REGULAR_FOR_ALL
                    ):
                        break
                else:
                    continue
        except (OSError, ValueError):
            pass  # the closer look decides
        odd.append(index)
    return odd


def _n_quotes(receipt: _Usual) -> int:
    """How many quotation marks the text has: two for each key and string, if no key stands twice.

    A duplicate key brings at least two more, and so does nothing else but an escaped mark.
    """
    n_keys = _N_REQUIRED + (receipt.started_at is not None) + (receipt.schema_version is not None)
    n_of_files = _N_OF_A_FILE * len(receipt.files)
    return 2 * (n_keys + _N_STRINGS + len(receipt.stats) + n_of_files)

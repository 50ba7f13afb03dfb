"""A quick look at whether shards are done, which passes over nearly all of them.

A receipt with the usual fields is decoded straight into them. That no key stands twice in it, is
seen by counting quotation marks. Whatever is unusual is left to the closer look.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import msgspec

from shardproof._base.names import OPEN_FLAGS
from shardproof.receipts.plan._directories import PlanHeader
from shardproof.receipts.verdict._outputs import why_lacking

__all__ = ["UsualFile", "is_plain", "not_plainly_done", "usual_files"]


class UsualFile(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One of the files of a `_Usual` receipt."""

    path: str
    bytes: int
    checksum: str


class _Usual(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A receipt with the usual fields and no other: ours, and most of Nemotron's."""

    status: Literal["completed"]
    plan_hash: str
    shard_index: int
    run_hash: str
    dataset_name: str
    completed_at: float
    stats: dict[str, float]
    files: dict[str, UsualFile]
    started_at: float | None = None
    schema_version: Literal[1] | None = None
    output_file: str | None = None
    kinds: tuple[str, ...] | None = None


_USUAL_BYTES = 4096
_N_ALWAYS = 12  # keys and strings: eight fields of _Usual, of which four are strings
_N_OF_OUTPUT_FILE = 2  # its key, and a string
_N_OF_A_FILE = 6  # its key, its three fields, and two strings

is_plain = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.\-]{0,200}").fullmatch
"""None for a name that is not surely harmless."""

# What all may read, this process may: so no output has to be opened to know that.
_TYPE_AND_READ = 0o170444
_REGULAR_FOR_ALL = 0o100444


def usual_files(
    header: PlanHeader, receipts_fd: int, indices: Sequence[int]
) -> Iterator[Collection[UsualFile] | None]:
    """Yield for each shard the files that its receipt records as completed; None: look closer.

    They are only given of a receipt of this plan and shard that has the usual fields, each once,
    and names each kind of output that the plan owes. Their names are untrusted; `is_plain` tells
    the harmless ones.
    """
    decode = msgspec.json.Decoder(_Usual).decode
    open_, read, close, flags = os.open, os.read, os.close, OPEN_FLAGS
    for index in indices:
        try:
            fd = open_(f"shard_{index:06d}.json", flags, dir_fd=receipts_fd)
            try:
                data = read(fd, _USUAL_BYTES)
            finally:
                close(fd)
            receipt = decode(data)
        except (OSError, ValueError, msgspec.DecodeError):
            yield None
            continue
        files = receipt.files.values()
        names = [file.path for file in files]
        # Two quotation marks for each key and each string: a key that stands twice brings at least
        # two more, and so does nothing else but an escaped mark.
        n_keys_and_strings = (
            _N_ALWAYS
            + (receipt.started_at is not None)
            + (receipt.schema_version is not None)
            + (0 if receipt.kinds is None else 1 + len(receipt.kinds))
            + _N_OF_OUTPUT_FILE * (receipt.output_file is not None)
            + len(receipt.stats)
            + _N_OF_A_FILE * len(files)
        )
        is_usual = (
            receipt.plan_hash == header.plan_hash
            and receipt.shard_index == index
            and len(data) < _USUAL_BYTES
            and data.count(b'"') == 2 * n_keys_and_strings
            and why_lacking(receipt.files, header.kinds or receipt.kinds) is None
            # No two outputs are one file, and what is named beside them is one of them.
            and len({name.lower() for name in names}) == len(names)
            and (receipt.output_file is None or receipt.output_file in names)
        )
        yield files if is_usual and files else None


def not_plainly_done(
    header: PlanHeader, root_fd: int, receipts_fd: int, indices: Sequence[int], names: list[str]
) -> list[int]:
    """Return the shards that are not done beyond doubt; ``names`` gets the outputs of the others.

    The time of a look at level ``complete`` goes into this loop and into `usual_files`. They only
    ever pass over what the closer look calls done: outputs must have plain names and be regular
    files that all may read.
    """
    lstat, plain = os.lstat, is_plain
    odd = []
    for index, files in zip(indices, usual_files(header, receipts_fd, indices), strict=True):
        if files is None:
            odd.append(index)
            continue
        try:
            for file in files:
                if plain(file.path) is None:
                    break
                status = lstat(file.path, dir_fd=root_fd)
                if (
                    status.st_size != file.bytes
                    or status.st_mode & _TYPE_AND_READ != _REGULAR_FOR_ALL
                ):
                    break
            else:
                names += [file.path for file in files]
                continue
        except OSError:
            pass  # the closer look decides
        odd.append(index)
    return odd

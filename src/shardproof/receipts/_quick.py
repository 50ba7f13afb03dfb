"""A quick look at whether shards are done, which passes over nearly all of them.

A receipt with the usual fields is decoded straight into them. That no key stands twice in it, is
seen by counting quotation marks. Whatever is unusual is left to the closer look.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from shardproof._base.names import OPEN_FLAGS
from shardproof.receipts._directories import PlanHeader
from shardproof.receipts._records import why_lacking


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

_decode = msgspec.json.Decoder(_Usual).decode

_is_plain = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.\-]{0,200}").fullmatch
"""None for a name that is not surely harmless."""

_is_digest = re.compile(r"xxh64:(?:[0-9a-f]{16}|unknown|empty)|sha256:[0-9a-f]{64}").fullmatch

# A receipt's file name is made of two halves, of which there are few: that takes a third of the
# time. An output of the same shard begins as it does.
_BEGINS = [f"shard_{number:03d}" for number in range(1000)]
_ENDS = [f"{number:03d}" for number in range(1000)]

# What all may read, this process may: so no output has to be opened to know that.
_TYPE_AND_READ = 0o170444
_REGULAR_FOR_ALL = 0o100444


class _Owed(NamedTuple):
    """What is known of all receipts that name the same kinds of outputs."""

    kinds: list[str]
    of_receipt: tuple[str, ...] | None
    is_all: bool  # that the plan owes
    suffixes: list[str]  # of outputs that have their shard's name; none if those are not harmless


def usual_files(
    header: PlanHeader, receipts_fd: int, indices: Sequence[int], *, harmless: bool = True
) -> Iterator[Collection[UsualFile] | None]:
    """Yield for each shard the files that its receipt records as completed; None: look closer."""
    # They are only given of a receipt of this plan and shard that has the usual fields, each once,
    # and names each kind of output that is owed. Names are untrusted still, unless `harmless`.
    open_, read, close, flags = os.open, os.read, os.close, OPEN_FLAGS
    owed = _Owed([], None, is_all=False, suffixes=[])
    for index in indices:
        stem = _BEGINS[index // 1000] + _ENDS[index % 1000]
        try:
            fd = open_(stem + ".json", flags, dir_fd=receipts_fd)
            try:
                data = read(fd, _USUAL_BYTES)
            finally:
                close(fd)
            receipt = _decode(data)
        except (OSError, ValueError, msgspec.DecodeError):
            yield None
            continue
        files = receipt.files.values()
        names = [file.path for file in files]
        if [*receipt.files] != owed.kinds or receipt.kinds != owed.of_receipt:
            owed = _owed(header, receipt)
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
            and all(_is_digest(file.checksum) for file in files)
            and owed.is_all
            and (
                names == [stem + suffix for suffix in owed.suffixes] or _are_apart(names, harmless)
            )
            # What is named beside the outputs is one of them.
            and (receipt.output_file is None or receipt.output_file in names)
        )
        yield files if is_usual and files else None


def _owed(header: PlanHeader, receipt: _Usual) -> _Owed:
    is_all = why_lacking(receipt.files, header.kinds or receipt.kinds) is None
    suffixes = [f".{kind}" for kind in receipt.files]
    is_harmless = _are_apart([f"shard_000000{suffix}" for suffix in suffixes], harmless=True)
    return _Owed([*receipt.files], receipt.kinds, is_all, suffixes if is_harmless else [])


def _are_apart(names: Sequence[str], harmless: bool) -> bool:
    """Whether no two names are one file, and, if they must be harmless, all are plain."""
    is_fit = not harmless or all(map(_is_plain, names))
    return is_fit and len({name.lower() for name in names}) == len(names)


def not_plainly_done(
    header: PlanHeader, root_fd: int, receipts_fd: int, indices: Sequence[int], names: list[str]
) -> list[int]:
    """Return the shards not done beyond doubt; ``names`` gets the outputs of the others."""
    lstat = os.lstat
    odd = []
    for index, files in zip(indices, usual_files(header, receipts_fd, indices), strict=True):
        if files is None:
            odd.append(index)
            continue
        try:
            for file in files:
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

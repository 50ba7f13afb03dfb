"""When a shard is done: the one definition, which planning, stages and the validator share.

A quick look passes over nearly all of those that are: a receipt with the usual fields is decoded
straight into them. Whatever is unusual is left to the closer look.
"""

import dataclasses
import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from shardproof._base import fanout
from shardproof._base.messages import joined, quoted, shown
from shardproof._base.names import OPEN_FLAGS
from shardproof.checks import check
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.receipts._directories import RECEIPTS, PlanHeader, receipt_name
from shardproof.receipts._records import opened_receipts, owed, read_receipt, why_lacking
from shardproof.report import Level

_VerdictStatus = Literal["absent", "started", "failed", "completed", "damaged", "foreign"]

_NO_RECEIPT = "there is no receipt"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one shard is done, and why or why not.

    Attributes:
        index: The shard.
        completed: Whether it is.
        status: What its receipt says; ``"absent"``: there is none; ``"damaged"``: it can't be read;
            ``"foreign"``: it is another plan's or another shard's.
        reason: In words.
    """

    index: int
    completed: bool
    status: _VerdictStatus
    reason: str

    def __bool__(self) -> bool:
        """Whether the shard is done, so that ``if verdict`` means what it says."""
        return self.completed


class ReceiptVerdict(NamedTuple):
    """What one shard's receipt says, before its outputs are looked at."""

    status: _VerdictStatus
    reason: str = ""  # why the shard is not done; no text where the receipt says completed
    files: Sequence[ExpectedFile] = ()  # of a completed one, as `completed_at`
    completed_at: float | None = None


def look_at(
    header: PlanHeader,
    indices: Sequence[int],
    level: Level,
    workers: int | None = None,
    *,
    pending: bool = True,
) -> tuple[list[Verdict], list[str]]:
    """Return the verdict on each shard, and the names of the outputs of all that say completed."""
    chunk = 64
    if level == "valid":
        workers, chunk = workers or fanout.available_cpus(), 1
    with opened_receipts(header.root) as (root_fd, receipts_fd):

        def look(indices: Sequence[int]) -> list[tuple[list[Verdict], list[str]]]:
            names: list[str] = []
            if receipts_fd is None:
                absent = [Verdict(index, False, "absent", _NO_RECEIPT) for index in indices]
                return [(absent, names)]
            if pending and level == "complete":
                indices = not_plainly_done(header, root_fd, receipts_fd, indices, names)
            found = [verdict(header, index, level, names) for index in indices]
            return [([one for one in found if not (pending and one.completed)], names)]

        looks = fanout.collected(look, indices, workers, chunk=chunk, is_told=True)
    verdicts = [found for look in looks for found in look[0]]
    return verdicts, [name for look in looks for name in look[1]]


def verdict(
    header: PlanHeader, index: int, level: Level, names: list[str] | None = None
) -> Verdict:
    """Return whether a shard is done by its own receipt, from a closer look."""
    said = judge_receipt(header, index)
    if said.status == "completed":
        if names is not None:
            names += [file.name for file in said.files]
        try:
            return _look_at_outputs(header, index, level, said.files)
        except ManifestError as error:
            said = _not_believed(error)
    reason = said.reason
    if said.status == "damaged":
        reason = f"its receipt can't be believed: {reason}"
    return Verdict(index, False, said.status, reason)


def judge_receipt(header: PlanHeader, index: int) -> ReceiptVerdict:
    """Return what a shard's receipt says, from a closer look."""
    try:
        receipt = read_receipt(header.root, index)
        if receipt.plan_hash != header.plan_hash:
            plan, found = quoted(header.plan_hash), quoted(receipt.plan_hash)
            return ReceiptVerdict("foreign", f"its receipt is of plan {found}, not of {plan}")
        if receipt.shard_index != index:
            return ReceiptVerdict("foreign", f"its receipt is that of shard {receipt.shard_index}")
        if receipt.status == "started":
            return ReceiptVerdict("started", "it was started, and not completed")
        if receipt.status == "failed":
            error_text = f"{receipt.error_type}: {receipt.error_message}".split("\n", 1)[0]
            return ReceiptVerdict("failed", f"it failed: {quoted(error_text, 200)}")
        path = os.path.join(header.root, RECEIPTS, receipt_name(index))
        files = [
            ExpectedFile(name=output.path, size=output.bytes, digest=output.checksum)
            for output in owed(receipt, path, header.kinds)
        ]
    except ManifestError as error:
        return _not_believed(error)
    return ReceiptVerdict("completed", "", files, receipt.completed_at)


def _not_believed(error: ManifestError) -> ReceiptVerdict:
    if isinstance(error, ManifestNotFoundError):
        return ReceiptVerdict("absent", _NO_RECEIPT)
    if isinstance(error, ManifestPermissionError):
        # Its writer may have done the work, or be at it, so it is not to be done again.
        raise PermissionError(errno.EACCES, error.problem, error.path) from error
    return ReceiptVerdict("damaged", error.problem)


def _look_at_outputs(
    header: PlanHeader, index: int, level: Level, files: Sequence[ExpectedFile]
) -> Verdict:
    source = f"{RECEIPTS}/{receipt_name(index)}"
    manifest = Manifest.at(header.root, source, "receipts", files)
    report = check(manifest, level=level, workers=1, list_first=False)
    reasons = []
    for finding in report.findings:
        if not finding.conclusive:
            raise OSError(finding.errno, finding.found, str(finding.path))
        reason = f"expected {finding.expected} at '{shown(finding.path)}', found {finding.found}"
        reasons.append(reason)
    if level == "valid":
        reasons += [
            f"no digest of '{shown(path)}' is recorded that could be proven"
            for path in report.unproven
        ]
    if reasons:
        return Verdict(index, False, "completed", "completed, but " + joined(reasons))
    return Verdict(index, True, "completed", f"completed, {len(files)} outputs as recorded")


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


class _OwedKinds(NamedTuple):
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
    known = _OwedKinds([], None, is_all=False, suffixes=[])
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
        if [*receipt.files] != known.kinds or receipt.kinds != known.of_receipt:
            known = _owed_kinds(header, receipt)
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
            and known.is_all
            and (
                names == [stem + suffix for suffix in known.suffixes] or _are_apart(names, harmless)
            )
            # What is named beside the outputs is one of them.
            and (receipt.output_file is None or receipt.output_file in names)
        )
        yield files if is_usual and files else None


def _owed_kinds(header: PlanHeader, receipt: _Usual) -> _OwedKinds:
    is_all = why_lacking(receipt.files, header.kinds or receipt.kinds) is None
    suffixes = [f".{kind}" for kind in receipt.files]
    is_harmless = _are_apart([f"shard_000000{suffix}" for suffix in suffixes], harmless=True)
    return _OwedKinds([*receipt.files], receipt.kinds, is_all, suffixes if is_harmless else [])


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

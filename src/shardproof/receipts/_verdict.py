"""When a shard is done: the one definition, which planning, stages and the validator share.

A shard is done when its receipt can be read, is of this plan and this shard, says completed, and
every output that it names is there as recorded, which the validator's own checks decide.
"""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from shardproof._base import fanout
from shardproof._base.messages import joined, quoted, shown
from shardproof._base.names import open_root
from shardproof.checks import check
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.receipts._directories import RECEIPTS, PlanHeader, receipt_name
from shardproof.receipts._quick import not_plainly_done
from shardproof.receipts._records import open_receipts, owed, read_receipt
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
    root_fd = open_root(header.root)
    try:
        with open_receipts(header.root, root_fd) as receipts_fd:

            def look(indices: Sequence[int]) -> list[tuple[list[Verdict], list[str]]]:
                names: list[str] = []
                if receipts_fd is None:
                    absent = [Verdict(index, False, "absent", _NO_RECEIPT) for index in indices]
                    return [(absent, names)]
                if pending and level == "complete":
                    indices = not_plainly_done(header, root_fd, receipts_fd, indices, names)
                found = [verdict(header, index, level, names) for index in indices]
                return [([one for one in found if not (pending and one.completed)], names)]

            if level == "valid":
                cpus = workers or fanout.available_cpus()
                runs = fanout.over_threads(look, indices, cpus, chunk=1)
            else:
                runs = fanout.over_threads(look, indices, workers)
            with contextlib.closing(runs):
                looks = [look for _, found in runs for look in found]
    finally:
        os.close(root_fd)
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
            reason = f"its receipt is that of shard {receipt.shard_index}"
            return ReceiptVerdict("foreign", reason)
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
    source = Path(header.root, RECEIPTS, receipt_name(index))
    manifest = Manifest(root=Path(header.root), path=source, format="receipts", files=files)
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

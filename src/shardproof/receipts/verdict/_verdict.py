"""When a shard is done: the one definition, which planning, stages and the validator share.

A shard is done when its receipt can be read, is of this plan and this shard, says completed, and
every output that it names is there as recorded, which the validator's own checks decide.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from shardproof._base import fanout, json
from shardproof._base.messages import joined, quoted, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type, open_root
from shardproof._base.opening import mode_of
from shardproof._base.paths import permission_denied
from shardproof.checks import check
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.manifest import Manifest, PromisedFile
from shardproof.receipts.plan._layout import (
    MAX_RECEIPT_BYTES,
    RECEIPTS,
    Scope,
    receipt_name,
    told_of,
)
from shardproof.receipts.verdict._outputs import owed
from shardproof.receipts.verdict._quick import not_plainly_done
from shardproof.receipts.verdict._records import Receipt, decode_receipt
from shardproof.report import Finding, Level, Report

__all__ = [
    "Looked",
    "Verdict",
    "VerdictStatus",
    "look_at",
    "may_not_read",
    "open_receipts",
    "promised",
    "read_receipt",
    "verdict",
    "why_foreign",
]

VerdictStatus = Literal["absent", "started", "failed", "completed", "damaged", "foreign"]
"""What a shard's receipt says; absent: there is none; damaged: it can't be read; foreign: it is
another plan's or another shard's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one shard is done, and why or why not.

    Attributes:
        index: The shard.
        completed: Whether it is.
        status: What its receipt says.
        reason: In words.
    """

    index: int
    completed: bool
    status: VerdictStatus
    reason: str

    def __bool__(self) -> bool:
        """Whether the shard is done, so that ``if verdict`` means what it says."""
        return self.completed


class Looked(NamedTuple):
    """What a look at some shards found.

    Attributes:
        verdicts: The verdicts that were asked for.
        names: The outputs of all that say completed.
    """

    verdicts: list[Verdict]
    names: list[str]


def look_at(
    scope: Scope,
    indices: Sequence[int],
    level: Level,
    workers: int | None = None,
    *,
    pending: bool = True,
) -> Looked:
    """Return the verdict on each shard, in the order of ``indices``.

    Each is judged by its own receipt; whether two name one output, the caller finds in the names.

    Args:
        scope: Whose receipts are looked at.
        indices: The shards.
        level: How hard to look.
        workers: How many threads look; None to decide by how long the file system takes.
        pending: Whether verdicts on shards that are done are left out, which takes less time.

    Raises:
        ManifestError: The plan directory can't be opened.
        OSError: A receipt or an output could not be looked at (EIO, ESTALE, ...).
    """
    root_fd = open_root(scope.root)
    try:
        with open_receipts(scope.root, root_fd) as receipts_fd:
            look = functools.partial(
                _look_at_all, scope, level, root_fd, receipts_fd, pending=pending
            )
            if level == "valid":
                cpus = workers or fanout.available_cpus()
                runs = fanout.over_threads(look, indices, cpus, chunk=1)
            else:
                runs = fanout.over_threads(look, indices, workers)
            with contextlib.closing(runs):
                looks = [look for _, found in runs for look in found]
    finally:
        os.close(root_fd)
    verdicts = [found for look in looks for found in look.verdicts]
    return Looked(verdicts, [name for look in looks for name in look.names])


@contextlib.contextmanager
def open_receipts(root: str, root_fd: int) -> Iterator[int | None]:
    """Yield a descriptor of the directory of receipts; None where there is none yet.

    Raises:
        ManifestError: It is something else than a directory.
    """
    try:
        fd = os.open(RECEIPTS, OPEN_FLAGS | os.O_DIRECTORY, dir_fd=root_fd)
    except FileNotFoundError:
        yield None
        return
    except PermissionError as error:
        path = os.path.join(root, RECEIPTS)
        raise ManifestPermissionError(permission_denied(), path=path) from error
    except NotADirectoryError as error:
        path = _receipts_dir(root)
        raise ManifestError(
            f"expected a directory of receipts: {told(error)}", path=path
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _look_at_all(
    scope: Scope,
    level: Level,
    root_fd: int,
    receipts_fd: int | None,
    indices: Sequence[int],
    *,
    pending: bool,
) -> list[Looked]:
    if receipts_fd is None:
        return [Looked([_absent(index) for index in indices], [])]
    names: list[str] = []
    if pending and level == "complete":
        indices = not_plainly_done(scope, root_fd, receipts_fd, indices, names)
    found = [verdict(scope, index, level, names) for index in indices]
    return [Looked([one for one in found if not (pending and one.completed)], names)]


def verdict(scope: Scope, index: int, level: Level, names: list[str] | None = None) -> Verdict:
    """Return whether a shard is done by its own receipt, from a closer look.

    Args:
        scope: Whose receipts are looked at.
        index: The shard.
        level: How hard to look.
        names: Is given the outputs that a completed receipt names.

    Raises:
        OSError: It could not be looked at (EIO, ESTALE, ...), or its receipt may not be read.
    """
    try:
        receipt = read_receipt(scope.root, index)
        if foreign := why_foreign(scope, receipt, index):
            return Verdict(index, False, "foreign", foreign)
        if receipt.status != "completed":
            return Verdict(index, False, receipt.status, _unfinished(receipt))
        return _look_at_outputs(scope, receipt, index, level, names)
    except ManifestNotFoundError:
        return _absent(index)
    except ManifestPermissionError as error:
        raise may_not_read(error) from error
    except ManifestError as error:
        return Verdict(index, False, "damaged", f"its receipt can't be believed: {error.problem}")


def may_not_read(error: ManifestPermissionError) -> PermissionError:
    """Return the error for a receipt that may not be read: the shard could not be looked at.

    Its writer may have done the work, or be at it, so it is not to be done again.
    """
    return PermissionError(errno.EACCES, error.problem, error.path)


def read_receipt(root: str, index: int) -> Receipt:
    """Return a shard's receipt.

    Raises:
        ManifestNotFoundError: There is none.
        ManifestError: It can't be read.
        OSError: The file system failed.
    """
    path = os.path.join(_receipts_dir(root), receipt_name(index))
    name = f"{RECEIPTS}/{receipt_name(index)}"
    with told_of(path):
        data = json.read_bytes(root, name, max_bytes=MAX_RECEIPT_BYTES)
    return decode_receipt(data, path)


def _receipts_dir(root: str) -> str:
    """Return the path of the directory of receipts.

    Raises:
        ManifestError: It is a link, which could lead anywhere, or something else.
        OSError: It could not be looked at (EIO, ESTALE, ...).
    """
    path = os.path.join(root, RECEIPTS)
    mode = mode_of(path)
    if mode and not stat.S_ISDIR(mode):
        problem = f"expected a directory of receipts, found a {file_type(mode)}"
        raise ManifestError(problem, path=path)
    return path


def _absent(index: int) -> Verdict:
    return Verdict(index, False, "absent", "there is no receipt")


def why_foreign(scope: Scope, receipt: Receipt, index: int) -> str | None:
    """Return why a receipt is not this plan's and this shard's; None if it is."""
    if receipt.plan_hash != scope.plan_hash:
        return (
            f"its receipt is of plan {quoted(receipt.plan_hash)}, not of {quoted(scope.plan_hash)}"
        )
    if receipt.shard_index != index:
        return f"its receipt is that of shard {receipt.shard_index}"
    return None


def _unfinished(receipt: Receipt) -> str:
    if receipt.status == "started":
        return "it was started, and not completed"
    error = f"{receipt.error_type}: {receipt.error_message}".split("\n", 1)[0]
    return f"it failed: {quoted(error, 200)}"


def promised(scope: Scope, receipt: Receipt, path: str) -> list[PromisedFile]:
    """Return what a completed receipt promises; ``path`` is where it was read.

    Raises:
        ManifestError: That can't be told, or is less than the plan owes.
    """
    outputs = owed(receipt, path, scope.kinds)
    return [
        PromisedFile(name=output.path, size=output.bytes, digest=output.checksum)
        for output in outputs
    ]


def _look_at_outputs(
    scope: Scope, receipt: Receipt, index: int, level: Level, names: list[str] | None
) -> Verdict:
    source = Path(scope.root, RECEIPTS, receipt_name(index))
    files = promised(scope, receipt, os.fspath(source))
    if names is not None:
        names += [file.name for file in files]
    manifest = Manifest(root=Path(scope.root), path=source, format="receipts", files=files)
    report = check(manifest, level=level, workers=1, list_first=False)
    if reasons := [*map(_broken, report.findings), *_unproven(report)]:
        return Verdict(index, False, "completed", "completed, but " + joined(reasons))
    return Verdict(index, True, "completed", f"completed, {len(files)} outputs as recorded")


def _broken(finding: Finding) -> str:
    if not finding.conclusive:
        raise OSError(finding.errno, finding.found, str(finding.path))
    return f"expected {finding.expected} at '{shown(finding.path)}', found {finding.found}"


def _unproven(report: Report) -> Iterator[str]:
    """Yield a line for each output whose digest was asked for and is not recorded."""
    if report.level == "valid":
        for path in report.unproven:
            yield f"no digest of '{shown(path)}' is recorded that could be proven"

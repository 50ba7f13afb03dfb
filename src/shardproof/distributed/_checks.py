"""One check for all ranks: what each sees there, who checks what, and the report of it all."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from shardproof import validation
from shardproof._base.addresses import is_address
from shardproof._base.arguments import checked, number
from shardproof._base.fanout import Done
from shardproof._base.messages import joined, shown
from shardproof._base.mounts import machine_of
from shardproof._base.names import open_root
from shardproof._base.opening import closing_fd
from shardproof._base.work import to_waiter
from shardproof.checks import Said, Unproven, check
from shardproof.distributed._messages import CallEnded, Message, by_ranks, packed, unpacked
from shardproof.distributed.calls import TIMEOUT, JointCall, called, firsts, in_round, on_all_ranks
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.report import MOST_KEPT, Finding, MoreFindings, Report

Spread = Literal["one", "node", "all"]
Check = Callable[..., Report]
Task: Any = tuple[int, int] | bool  # from one file to another; or all for its host, or nothing

_OWN = {"against", "progress", "workers"}
_TIP = '; if each host has a directory of its own, spread="node" checks each of them'
_FILE_BYTES = 2**16  # which take as long to read as a file takes to open
_BATCH = 4096


@checked
def validate(
    path: str | os.PathLike[str],
    *,
    group: Any = None,
    spread: Spread = "all",
    timeout: float = TIMEOUT,
    **as_validate: Any,
) -> Report:
    """Check a shards directory once for all ranks of a job, each of which calls this.

    Every rank returns the same report, or raises the same error: what a rank meets is raised by
    all, and says which it was, unless all have met it. No rank waits for ever: one that was killed
    or stopped, or whose host is gone, ends the call of the others by name.

    Args:
        path: As for `shardproof.validate`.
        group: A process group of torch.distributed, by default its default one; a communicator of
            mpi4py; or any `Group`.
        spread: ``"all"``: the files are dealt out to all ranks, which must see one directory.
            ``"node"``: one rank of each host checks the directory that its host has of its own;
            findings name the host, and files are counted for each. ``"one"``: rank 0 checks, and
            the others look at nothing; so it is for an address.
        timeout: Seconds of silence after which a rank is given up, 0.5 or more. How long the check
            takes does not matter.
        as_validate: Further arguments of `shardproof.validate`, but ``executor``.

    Raises:
        RankError: A rank has been silent for so long, can't be reached, was interrupted, sees
            another directory, passed other arguments, or runs another version.
        Exception: What `shardproof.validate` raises.

    Example:
        >>> from shardproof import distributed
        >>> class Alone:
        ...     rank, size, host = 0, 1, "here"
        ...     def send(self, data, to): ...
        ...     def receive(self, source, timeout): ...
        >>> distributed.validate(shards_dir, group=Alone()).ok
        True
    """
    number("timeout", timeout, 0.5)
    if "executor" in as_validate:
        raise ValueError("executor: the ranks themselves check; leave it out")

    def run(check: Check) -> Report:
        if is_address(path) and spread != "one":
            raise ValueError('spread: expected "one" for an address')
        return validation.validate(path, **as_validate, _check=check)

    # Others may differ; what `against` expects is compared as the manifest.
    named = {name: value for name, value in as_validate.items() if name not in _OWN}
    call = called("validate", spread=spread, **named)
    return check_together(group, call, run, spread=spread, timeout=timeout)


def check_together(
    group: object,
    asked: str,
    run: Callable[[Check], Report],
    *,
    spread: Spread | None = None,
    timeout: float = TIMEOUT,
) -> Report:
    """Return the one report of all ranks; ``run`` checks a directory by a function like `check`."""
    # Where no spread is given the files are dealt out if all see one directory; else one rank of
    # each host checks what its host has.

    def part(call: JointCall) -> bytes:
        if spread == "one":
            return b"" if call.rank else packed(run(check))
        with contextlib.suppress(_MadeElsewhere):
            return packed(run(functools.partial(_dealt, call, spread)))
        return b""

    answers = functools.partial(_merged, spread)
    return unpacked(on_all_ranks(group, asked, part, answers, timeout), Report)


class SeenRoot(msgspec.Struct, frozen=True):
    """What a rank sees. Numbers of devices are comparable on one host only."""

    device: int
    inode: int
    path: str
    manifest: str  # its digest
    machine: str  # of its disk, if that is no other's

    @classmethod
    def of(cls, manifest: Manifest) -> "SeenRoot":
        """Return what is seen where a manifest is, and in it."""
        with closing_fd(open_root(os.fspath(manifest.root))) as fd:
            status = os.fstat(fd)
        hashed = hashlib.blake2b(manifest.format.encode(), digest_size=8)
        for start in range(0, len(manifest.files), _BATCH):
            hashed.update(msgspec.msgpack.encode([*manifest.files[start : start + _BATCH]]))
        path = os.fspath(manifest.root)
        about = shown(path), hashed.hexdigest(), machine_of(path)
        return cls(status.st_dev, status.st_ino, *about)

    def __str__(self) -> str:
        about = f"device {self.device}, inode {self.inode}, manifest {self.manifest}"
        about += f", on the disk of machine {self.machine[:8]}" * bool(self.machine)
        return f"'{shown(self.path)}' ({about})"


def _tasks(
    spread: Spread | None, files: Sequence[ExpectedFile], reads: bool, said: Sequence[Message]
) -> list[bytes]:
    """Return what each rank is to check, or end the call where they see different directories."""
    tasks: Iterable[Task] = firsts(said)
    if _is_one_directory(said, may_differ=spread != "all") and spread != "node":
        tasks = itertools.pairwise(_bounds(files, len(said), reads=reads))
    return [*map(packed, tasks)]


def _is_one_directory(said: Sequence[Message], *, may_differ: bool) -> bool:
    """Whether all ranks see one directory; those of one host must, the others unless they may."""
    seen = [unpacked(each.body, SeenRoot) for each in said]
    hosts = [each.host for each in said]
    n_hosts, n_seen = len({*hosts}), len({*zip(hosts, seen, strict=True)})
    is_right = n_seen == n_hosts and len({each.manifest for each in seen}) == 1
    # By one path, too: a report has one.
    is_one = len({(each.inode, each.path) for each in seen}) == 1
    is_one = is_one and len({each.machine for each in seen} - {""}) < 2
    if is_right and (is_one or may_differ):
        return is_one
    told = joined(by_ranks(enumerate(map(str, seen)), dict(enumerate(hosts))))
    raise CallEnded(f"the ranks see different directories: {told}{'' if may_differ else _TIP}")


def _bounds(files: Sequence[ExpectedFile], n_ranks: int, *, reads: bool) -> list[int]:
    """Return where the share of each rank begins, and the last one ends: files that follow."""
    sums = [*itertools.accumulate(_FILE_BYTES + (file.size or 0) * reads for file in files)]
    each = sums[-1] / n_ranks if sums else 0
    return [0, *(bisect_left(sums, each * rank) for rank in range(1, n_ranks)), len(files)]


class _MadeElsewhere(Exception):  # noqa: N818 - it ends a check of which another rank makes the report
    pass


def _dealt(call: JointCall, spread: Spread | None, manifest: Manifest, **how: Any) -> Report:
    """Check what is for this host, or a share, of which rank 0 makes the report."""
    tasks = functools.partial(_tasks, spread, manifest.files, how["level"] == "valid")
    tip = _TIP if spread == "all" else ""
    task = unpacked(in_round(call, packed(SeenRoot.of(manifest)), tasks, tip), Task)
    if task is True:
        return check(manifest, **how)
    if task is False:
        raise _MadeElsewhere

    def joining(runs: Done[Said]) -> Done[Said]:
        if call.rank:
            to_waiter(call.exchange)(packed([each for _, some in runs for each in some]))
            raise _MadeElsewhere
        yield from runs
        for each in to_waiter(call.gather)(b"")[1:]:
            yield 0, [*unpacked(each.body, list[Finding | Unproven | None])]
        to_waiter(call.answer)([b""] * call.group.size)

    return check(manifest, share=slice(*task), joining=joining, **how)


def _merged(spread: Spread | None, said: Sequence[Message]) -> list[bytes]:
    """Return the one report of all ranks, of those that hosts or rank 0 have made."""
    reports = {each.host: unpacked(each.body, Report) for each in said if each.body}
    is_whole = len(reports) == 1 and spread != "node"
    whole = said[0].body if is_whole else packed(_of_hosts(reports))
    return [whole] * len(said)


def _of_hosts(reports: Mapping[str, Report]) -> Report:
    own, more, found = [*reports.values()], MoreFindings(), list[Finding]()
    for host, report in reports.items():
        found += [dataclasses.replace(each, host=host) for each in report.findings]
        more.counts += report.more.counts
        more.n_unseen += report.more.n_unseen
    for each in found[MOST_KEPT:]:
        more.add(each)
    for broken in (report.broken() for report in own):  # by names in its own directory
        more.broken |= zip(broken.indices, broken.names, strict=True)
    names = ("n_files", "n_proven", "n_unread", "n_agreed")
    changes: Any = {name: sum(getattr(report, name) for report in own) for name in names}
    told = f"each host has checked its own directory: {joined(sorted(map(shown, reports)))}"
    notes = dict.fromkeys(note for report in own for note in report.notes)
    unproven = tuple(path for report in own for path in report.unproven)
    changes |= {"notes": (*notes, told), "unproven": unproven, "more": more}
    return dataclasses.replace(own[0], findings=tuple(found[:MOST_KEPT]), **changes)

"""One check for all ranks: what each sees there, who checks what, and the report of it all."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
import typing
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from shardproof import formats, validation
from shardproof._base.arguments import checked, number
from shardproof._base.fanout import Done
from shardproof._base.messages import joined, shown
from shardproof._base.names import open_root
from shardproof._base.opening import closing_fd
from shardproof._base.work import to_waiter
from shardproof.checks import Said, Unproven, check
from shardproof.distributed._messages import CallEnded, Message, who
from shardproof.distributed.calls import TIMEOUT, JointCall, firsts, in_round, on_all_ranks
from shardproof.manifest import ExpectedFile, Manifest
from shardproof.report import MOST_KEPT, Finding, FindingKind, MoreFindings, Report

Value = TypeVar("Value")
Spread = Literal["one", "node", "all"]
Check = Callable[..., Report]
Run = Callable[[Check], Report]
"""Checks a directory by what is given, which is called as `check` is."""

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
            the others look at nothing.
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
    own = {"progress", "workers"}  # which may differ
    asked = [f"{each}={as_validate[each]!r}" for each in sorted(as_validate.keys() - own)]

    def run(check: Check) -> Report:
        return validation.validate(path, **as_validate, _check=check)

    def root() -> str:
        return formats.locate(path).root

    about: Any = {"root": root, "spread": spread, "timeout": timeout}
    return check_together(group, f"validate({', '.join(asked)})", run, **about)


def check_together(
    group: object,
    asked: str,
    run: Run,
    *,
    root: Callable[[], str] = str,
    spread: Spread | None = None,
    timeout: float = TIMEOUT,
) -> Report:
    """Return the one report of all ranks; ``run`` checks a directory by a function like `check`.

    Where no spread is given the files are dealt out if all see one directory; else one rank of each
    host checks what its host has.
    """

    def part(call: JointCall) -> Report:
        if spread not in {"one", "node"}:
            return run(functools.partial(_dealt, call, asked, spread))
        seen = b"" if spread == "one" else _packed(SeenRoot.at(asked, root()))
        task = in_round(call, seen, functools.partial(_tasks, spread, None, False))
        return _of_some(call, spread, run if _unpacked(task, bool) else None)

    return on_all_ranks(group, part, timeout)


class SeenRoot(msgspec.Struct, frozen=True):
    """What a rank sees. Numbers of devices are comparable on one host only."""

    device: int
    inode: int
    alike: str  # on all ranks
    text: str

    @classmethod
    def at(cls, asked: str, root: str, manifest: Manifest | None = None) -> "SeenRoot":
        """Return what is seen at a real path, and what its manifest says."""
        with closing_fd(open_root(root)) as fd:
            status = os.fstat(fd)
        told = "" if manifest is None else f", manifest {_digest_of(manifest)}"
        text = f"'{shown(root)}' (device {status.st_dev}, inode {status.st_ino}{told})"
        return cls(status.st_dev, status.st_ino, asked + told, f"{shown(asked)} of {text}")


Task: Any = tuple[int, int] | bool
"""What a rank is to check: files from one number to another; or all, for its host; or nothing."""


def _digest_of(manifest: Manifest) -> str:
    hashed = hashlib.blake2b(manifest.format.encode(), digest_size=8)
    for start in range(0, len(manifest.files), _BATCH):
        hashed.update(msgspec.msgpack.encode([*manifest.files[start : start + _BATCH]]))
    return hashed.hexdigest()


def _tasks(
    spread: Spread | None,
    files: Sequence[ExpectedFile] | None,
    reads: bool,
    said: Sequence[Message],
) -> list[bytes]:
    """Return what each rank is to do, or end the call where they see different directories."""
    is_one = spread == "one" or _is_one_directory(said, may_differ=spread != "all")
    tasks: Iterable[Task] = firsts(said, each_host=spread != "one")
    if files is not None and is_one:
        tasks = itertools.pairwise(_bounds(files, len(said), reads=reads))
    return [*map(_packed, tasks)]


def _is_one_directory(said: Sequence[Message], *, may_differ: bool) -> bool:
    """Whether all ranks see one directory; those of one host must, the others unless they may."""
    seen = [_unpacked(each.body, SeenRoot) for each in said]
    hosts = {rank: each.host for rank, each in enumerate(said)}
    roots = {(hosts[rank], each.device, each.inode) for rank, each in enumerate(seen)}
    is_one, n_hosts = len({each.inode for each in seen}) == 1, len({*hosts.values()})
    is_right = len(roots) == n_hosts and len({each.alike for each in seen}) == 1
    if is_right and (is_one or may_differ):
        return is_one
    ranks = collections.defaultdict[str, list[int]](list)
    for rank, each in enumerate(seen):
        ranks[each.text].append(rank)
    told = joined([f"{who(some, hosts)}: {text}" for text, some in ranks.items()])
    raise CallEnded(f"the ranks see different directories: {told}{'' if may_differ else _TIP}")


def _bounds(files: Sequence[ExpectedFile], n_ranks: int, *, reads: bool) -> list[int]:
    """Return where the share of each rank begins, and the last one ends: files that follow."""
    sums = [*itertools.accumulate(_FILE_BYTES + (file.size or 0) * reads for file in files)]
    each = sums[-1] / n_ranks if sums else 0
    return [0, *(bisect_left(sums, each * rank) for rank in range(1, n_ranks)), len(files)]


class _Answered(Exception):  # noqa: N818 - it ends a check of which another rank makes the report
    pass


def _dealt(
    call: JointCall, asked: str, spread: Spread | None, manifest: Manifest, **how: Any
) -> Report:
    """Check a share, or what is for this host; rank 0 makes the report of all."""
    seen = _packed(SeenRoot.at(asked, os.fspath(manifest.root), manifest))
    tasks = functools.partial(_tasks, spread, manifest.files, how["level"] == "valid")
    task = _unpacked(in_round(call, seen, tasks, _TIP if spread == "all" else ""), Task)
    if not isinstance(task, tuple):
        return _of_some(call, spread, (lambda look: look(manifest, **how)) if task else None)

    def joining(runs: Done[Said]) -> Done[Said]:
        if call.rank:
            found = [each for _, some in runs for each in some]
            raise _Answered(to_waiter(call.exchange)(_packed(found)))
        yield from runs
        for each in to_waiter(call.gather)(b"")[1:]:
            yield 0, [*_unpacked(each.body, list[Finding | Unproven | None])]

    try:
        report = check(manifest, share=slice(*task), joining=joining, **how)
    except _Answered as end:
        return _unpacked(end.args[0], Report)
    to_waiter(call.answer)([_packed(report)] * call.group.size)
    return report


def _of_some(call: JointCall, spread: Spread | None, run: Run | None) -> Report:
    """Check all of it if this rank is to, and return the report that rank 0 makes of those."""
    found, digests = b"", list[str]()

    def look(manifest: Manifest, **how: Any) -> Report:
        digests.append(_digest_of(manifest))
        return check(manifest, **how)

    if run is not None:
        report = run(look)
        found = _packed((digests[0], report))
    return _unpacked(in_round(call, found, functools.partial(_merged, spread)), Report)


def _merged(spread: Spread | None, said: Sequence[Message]) -> list[bytes]:
    """Return the one report of what hosts have found, each of which has said it once."""
    found = {each.host: _unpacked(each.body, tuple[str, Report]) for each in said if each.body}
    if len({digest for digest, _ in found.values()}) > 1:
        told = joined([f"{shown(host)}: {digest}" for host, (digest, _) in found.items()])
        raise CallEnded(f"the hosts have different manifests: {told}")
    reports = {host: report for host, (_, report) in found.items()}
    [whole] = reports.values() if spread == "one" else [_of_hosts(reports)]
    return [_packed(whole)] * len(said)


def _of_hosts(reports: Mapping[str, Report]) -> Report:
    own, more, kept = [*reports.values()], MoreFindings(), list[Finding]()
    for host, report in reports.items():
        more.add_all(report.more)
        for each in report.findings:
            if len(kept) < MOST_KEPT:
                kept.append(dataclasses.replace(each, host=host))
            else:
                more.add(each, os.path.relpath(each.path, report.path).removeprefix("../"))
    counts: Any = {}
    for name in ("n_files", "n_proven", "n_unread", "n_agreed"):
        counts[name] = sum(getattr(report, name) for report in own)
    told = f"each host has checked its own directory: {joined(sorted(map(shown, reports)))}"
    notes = dict.fromkeys(note for report in own for note in report.notes)
    unproven = tuple(path for report in own for path in report.unproven)
    counts |= {"notes": (*notes, told), "unproven": unproven, "more": more}
    return dataclasses.replace(own[0], findings=tuple(kept), **counts)


def _packed(value: object) -> bytes:
    """Return data as bytes; names are much alike, and become a tenth."""
    encoded = msgspec.msgpack.encode(value, enc_hook=os.fsencode)  # of paths, which may be no text
    return zlib.compress(encoded, level=1)


def _unpacked(data: bytes, kind: type[Value]) -> Value:
    """Return the data of bytes that a rank of the same version has packed."""
    return msgspec.msgpack.decode(zlib.decompress(data), type=kind, dec_hook=_of_plain)


def _of_plain(kind: Any, value: Any) -> object:
    if typing.get_origin(kind) is collections.Counter:
        kinds = {each.value: each for each in FindingKind}
        return collections.Counter({kinds[name]: n for name, n in value.items()})
    return Path(os.fsdecode(value))

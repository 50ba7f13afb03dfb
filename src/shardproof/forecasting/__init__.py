"""Forecast what the purge of a scratch file system takes next, by clocks or by the site's list."""

import dataclasses
import errno
import fnmatch
import functools
import glob
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shardproof import formats
from shardproof._base import digest_lists, fanout
from shardproof._base.arguments import checked, duration
from shardproof._base.messages import listed, quoted, shown, told
from shardproof._base.names import open_root
from shardproof._base.opening import closing_fd, files_below, is_there, refuse_empty, tree
from shardproof._base.work import apart, keeping_atime
from shardproof.forecasting._sites import Clock, policies, time_of, victims_among, worth_of
from shardproof.report import MOST_KEPT

__all__ = ["Clock", "Expiry", "Forecast", "forecast", "policies"]

_DAY, _WEEK, _SKEW = 86400.0, 604800.0, 60.0  # seconds; what clocks of two machines may differ
_DAWN, _END = -62135596800.0, 253402300799.0  # of the years 1 and 9999, which strftime knows
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}


class Expiry(NamedTuple):
    """From when on a file may go, in seconds since 1970; None where that is not known.

    ``why`` is ``"missing"``, ``"listed"`` by the site, or why it could not be looked at.
    """

    name: str
    at: float | None
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Forecast:
    """From when on the files of a directory may go; ``str()`` gives the text.

    Attributes:
        path: Absolute path of the directory, or of the prefix of a checkpoint.
        made_at: When it was made, in seconds since 1970.
        purge_after: The age from which a file goes, in seconds; None where only a list tells.
        clocks: By which the age is told.
        fail_within: In how many seconds no file may go, for `ok`.
        files: Those that the manifest lists, and its own, in the order in which they go.
        notes: What the clocks are worth there, and which times are odd.
    """

    path: Path
    made_at: float
    purge_after: float | None
    clocks: tuple[Clock, ...]
    fail_within: float
    files: tuple[Expiry, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every file was looked at, and none is gone or may go within `fail_within`."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 as asked; 1 files are gone, or go too soon; 3 some could not be looked at."""
        is_blind = any(each.why and each.at is None for each in self.files)
        return 3 if is_blind else int(self.within(self.fail_within) > 0)

    @property
    def broken_at(self) -> float | None:
        """From when on the directory may be broken; None if no file is known to go."""
        return self.files[0].at if self.files else None

    def within(self, seconds: float) -> int:
        """Return how many files are gone, or may go in that time."""
        until = self.made_at + seconds
        return sum(each.at is not None and each.at <= until for each in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as plain JSON values, with the first 10 000 files."""
        return {
            **{each.name: getattr(self, each.name) for each in dataclasses.fields(self)},
            "path": str(self.path),
            "ok": self.ok,
            "exit_code": self.exit_code,
            "made_at": _date(self.made_at),
            "broken_at": _date(self.broken_at),
            "n_files": len(self.files),
            "n_within_week": self.within(_WEEK),
            "files": [{**e._asdict(), "at": _date(e.at)} for e in self.files[:MOST_KEPT]],
        }

    def __str__(self) -> str:
        clocks = "the newest of " * (len(self.clocks) > 1) + " and ".join(self.clocks)
        age, until = self.purge_after, self.made_at + max(self.fail_within, _WEEK)
        rule = "the site's list" if age is None else f"{age / _DAY:g} days after {clocks}"
        lines = [
            f"{shown(each.name)}: {each.why or _date(each.at)}"
            for each in self.files
            if each.why or (each.at is not None and each.at <= until)
        ]
        n_soon, first = self.within(_WEEK), _date(self.broken_at) or "no known time"
        files = f"{n_soon} of {len(self.files)} files of '{shown(self.path)}' may go"
        texts = [f"{files} within 7 days, the first at {first} ({rule})"]
        texts += [listed(f"May go before {_date(until)}", lines)] if lines else []
        return "\n".join([*texts, *(f"note: {note}" for note in self.notes)])


@checked
def forecast(
    path: str | os.PathLike[str],
    *,
    purge_after: str | float | None = None,
    clock: Clock | Sequence[Clock] = (),
    policy: str | None = None,
    victims: str | os.PathLike[str] | None = None,
    fail_within: str | float = 0.0,
    format: str | None = None,  # noqa: A002 - as for `validate`
    now: float | None = None,
) -> Forecast:
    """Forecast from when on a purge may take the files of a shards directory.

    Without any of the files that the manifest lists, and of its own, the directory is broken. Only
    the manifest is opened, and no time of a file is changed; but on macOS, and of a manifest of
    another user's, its atime may be.

    Args:
        path: The shards directory, or the prefix of a checkpoint.
        purge_after: The age from which a file is deleted: ``"60d"``, ``"12h"``, ``"8w"``, seconds.
        clock: By which the age is told, by default ``"atime"``; of several, by the newest. Of a
            link, its target's counts.
        policy: One of `policies`; what is given besides counts more.
        victims: A list of what the site is about to delete: one absolute path a line, perhaps after
            other columns.
        fail_within: Within this time no file may go: ``"7d"``, or seconds.
        format: Name of the format, where the directory does not tell it.
        now: When it is, in seconds since 1970.

    Raises:
        ManifestError: As for `validate`.
        OSError: As for `validate`; or the list of victims could not be read.
        ValueError: No age, policy or victims; an unknown clock, policy or format.

    Example:
        >>> import shardproof
        >>> forecast = shardproof.forecast(shards_dir, purge_after="60d", fail_within="7d")
        >>> forecast.ok, forecast.within(61 * 86400)
        (True, 5)
    """
    refuse_empty(path=path, victims=victims)
    form = None if format is None else formats.get(format)
    if policy is not None and policy not in policies():
        raise ValueError(f"policy: expected one of {', '.join(policies())}, found {quoted(policy)}")
    known = policies()[policy] if policy else {}
    age = f"{known['days']}d" if known and purge_after is None else purge_after
    if age is None and victims is None:
        raise ValueError("expected purge_after, policy or victims, found none of them")
    after = None if age is None else duration("purge_after", age)
    clocks = (clock,) if isinstance(clock, str) else tuple(clock or known.get("clocks", ["atime"]))
    limit, made_at = duration("fail_within", fail_within), time.time() if now is None else now

    def work(_: object) -> Forecast:
        with keeping_atime():
            located = formats.locate(path)
            found = form or formats.detect(located.path)
            manifest = formats.read_manifest(found, located.path)
        root = os.fspath(manifest.root)
        names = [*dict.fromkeys([*(file.name for file in manifest.files), *_own(found, located)])]
        with closing_fd(open_root(root)) as dir_fd:
            look = functools.partial(_looks, dir_fd, clocks, after, made_at)
            files = fanout.collected(look, names)
        notes = ["a part of the manifest can't be read, and what it lists"] * bool(manifest.damaged)
        if known:
            notes.append(f"{policy} as of {known['read']}; ask your site: {known['source']}")
        if after is not None:
            notes += worth_of(clocks, root)
            times = [(f.at - after, f.name) for f in files if f.at is not None and not f.why]
            if odd := [each for each in times if not _DAY < each[0] < made_at + _SKEW]:
                first = f"such as {_date(odd[0][0])} of {quoted(odd[0][1])}"
                notes.append(f"times ahead of this clock, or of 1970: {len(odd)}, {first}")
        if victims is not None:
            alias = os.path.abspath(path).removesuffix(located.path.removeprefix(root))
            gone, n_lines = victims_among(names, {root, alias}, os.fspath(victims))
            notes.append(f"lines of the site's list: {n_lines}, of this directory: {len(gone)}")
            listed_now = {name: Expiry(name, made_at, "listed") for name in gone}
            files = [file if file.why else listed_now.get(file.name, file) for file in files]
        files.sort(key=lambda file: (file.at is None, file.at or 0.0, file.name))
        kept = tuple(files), tuple(notes)
        return Forecast(Path(located.path), made_at, after, clocks, limit, *kept)

    return apart(work)


def _own(form: formats.Format, located: formats.Located) -> Iterator[str]:
    """Yield the names of the files that a manifest consists of, and of seals."""
    patterns = {form.manifest_file, *form.further_parts, *digest_lists.NAMES.values()}
    below = [each for each in patterns if "/" in each or each in form.further_parts]
    begin = "" if located.path == located.root else f"{os.path.basename(located.path)}."
    names = [name for name in sorted(patterns) if is_there(os.path.join(located.root, name))]
    if any(map(glob.has_magic, below)):
        names = files_below(located.root, hidden=True)
    elif any(map(glob.has_magic, patterns)):  # else, as mostly, nothing has to be listed
        names += next(tree(located.root))[2]
    # Of a pattern of the directory itself none below counts.
    ways = [re.compile("|".join(map(fnmatch.translate, p)) or "(?!)") for p in (patterns, below)]
    return (name for name in names if name.startswith(begin) and ways["/" in name].match(name))


def _looks(
    dir_fd: int, clocks: Sequence[Clock], after: float | None, now: float, names: Sequence[str]
) -> list[Expiry]:
    found = []
    for name in names:
        try:
            status = os.stat(name, dir_fd=dir_fd)
            at = None if after is None else after + time_of(clocks, status, name, dir_fd)
            is_file = stat.S_ISREG(status.st_mode)
            found.append(Expiry(name, at) if is_file else Expiry(name, now, "missing"))
        except OSError as error:
            is_gone = error.errno in _NOT_THERE
            found.append(Expiry(name, *((now, "missing") if is_gone else (None, told(error)))))
    return found


def _date(at: float | None) -> str | None:
    when = None if at is None else time.gmtime(min(max(at, _DAWN), _END))
    return when and time.strftime("%Y-%m-%dT%H:%M:%SZ", when)

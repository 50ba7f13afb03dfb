"""Every exception that shardproof raises on purpose.

::

    ShardproofError
    +-- ManifestError                  a manifest can't be read
    |   +-- ManifestNotFoundError      ... because it is not there   (also a FileNotFoundError)
    |   +-- ManifestPermissionError    ... because it may not be     (also a PermissionError)
    +-- ShardValidationError           files are not as expected     (also a FileNotFoundError);
    |                                  it is in `shardproof.report`, whose report it carries
    +-- ShardReadError                 a shard that was proven can't be read now  (also an OSError)
    +-- SealError                      a directory can't be sealed
    +-- RankError                      a rank of a job is silent, or not at the same call
    +-- UnsyncedError                  written, but perhaps not for good         (also an OSError)
    +-- FetchError                     a shard can't be fetched and proven  (also an OSError and a
    |   |                                RuntimeError)
    |   +-- FetchTimeoutError          ... in time                   (also a TimeoutError)
    |   +-- SourceError                a source doesn't give what it was asked for
    |       +-- RevisionError          ... which revision is meant
    +-- CheckpointError                a checkpoint can't be written, read or proven
    |   +-- CheckpointNotFoundError    ... because it is not there   (also a FileNotFoundError)
    +-- ReceiptError                   a shard's work can't be planned, done or recorded
        +-- ShardCompletedError        ... it is done already
        +-- ShardClaimedError          ... another worker is at it
        +-- ClaimLostError             ... another worker took it over

What the operating system says while a manifest is read (an input/output error, a stale handle)
passes through as `OSError`; a wrong argument is a `TypeError` or a `ValueError`.
"""

from __future__ import annotations

import errno
import itertools
import os
from typing import TYPE_CHECKING, Any, Literal, get_args

from shardproof._base.messages import WRONG_USAGE, is_unreached, printable, shown
from shardproof._base.opening import is_too_long, may_be_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "CheckpointError",
    "CheckpointNotFoundError",
    "ClaimLostError",
    "FetchError",
    "FetchTimeoutError",
    "ManifestError",
    "ManifestNotFoundError",
    "ManifestPermissionError",
    "RankError",
    "ReceiptError",
    "RevisionError",
    "SealError",
    "ShardClaimedError",
    "ShardCompletedError",
    "ShardReadError",
    "ShardproofError",
    "SourceError",
    "SourceErrorKind",
    "UnsyncedError",
]


_LONGEST_FIELD = 200


class ShardproofError(Exception):
    """The root of shardproof's own exceptions: catch this to catch them all.

    Nothing in the text of one moves the cursor of a terminal or paints on it.
    """

    _EXIT_CODE: int | None = 2

    @property
    def exit_code(self) -> int | None:
        """What a command ends with: 2 unreadable, 3 not checked; None: the command knows."""
        return self._EXIT_CODE

    def __init__(self, *args: Any) -> None:
        super().__init__(*(printable(arg) if isinstance(arg, str) else arg for arg in args))

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of OSError shows errno and filename, not the text

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[Any, ...], dict[str, Any]]:
        # Exception's own __reduce__ calls the class with `args`, which loses keyword arguments.
        state = {**self.__dict__, "args": self.args}
        if isinstance(self, OSError):
            # Not in __dict__; and a None that is set is shown.
            given = {"errno": self.errno, "filename": self.filename}
            state |= {name: value for name, value in given.items() if value is not None}
        return type(self).__new__, (type(self),), state


class ManifestError(ShardproofError):
    """The manifest of a shards directory can't be read.

    Args:
        problem: What is wrong, what was expected and what to do, in one or more lines.
        path: Absolute path of the manifest file, or of the directory where there is none.
        line: Line in that file, counted from 1, where it is known.
        field: The field inside that file, such as ``$[3].n_examples``, where it is known.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | os.PathLike[str],
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.problem = printable(problem)
        self.path = os.fspath(path)
        self.line = line
        self.field = None if field is None else shown(field, _LONGEST_FIELD)
        where = f"'{shown(self.path)}'"
        if line is not None:
            where += f", line {line}"
        if field is not None:
            where += f", field {self.field}"
        super().__init__(f"Could not read the manifest at {where}: {problem}")


class ManifestNotFoundError(ManifestError, FileNotFoundError):
    """There is no manifest: no directory, or a directory without the file that lists its shards."""

    def __init__(self, problem: str, *, path: str | os.PathLike[str]) -> None:
        super().__init__(problem, path=path)
        self.errno, self.filename = errno.ENOENT, self.path


class ManifestPermissionError(ManifestError, PermissionError):
    """The manifest, or the directory that holds it, may not be read by this user."""

    def __init__(self, problem: str, *, path: str | os.PathLike[str]) -> None:
        super().__init__(problem, path=path)
        self.errno, self.filename = errno.EACCES, self.path


class ShardReadError(ShardproofError, OSError):
    """A shard that was whole when it was validated can't be read now.

    Args:
        problem: What is wrong.
        path: Absolute path of the shard. None in an error that torch passed on from a worker
            process: it is made anew from its text, which has all of this.
        offset: Where reading began, in bytes.
        expected: How many bytes were to be read there.
        found: How many were.
        errno: What the operating system said, where it said something.
    """

    _EXIT_CODE = 3  # it was whole before, and may be so again

    def __init__(
        self,
        problem: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int = 0,
        expected: int = 0,
        found: int = 0,
        errno: int | None = None,
    ) -> None:
        self.problem = printable(problem)
        self.path = None if path is None else os.fspath(path)
        self.offset, self.expected, self.found = offset, expected, found
        text = problem if self.path is None else f"Could not read '{shown(self.path)}': {problem}"
        if expected:
            text += f" (at byte {offset}: expected {expected} bytes, found {found})"
        super().__init__(text)
        self.errno = errno


class SealError(ShardproofError):
    """A directory can't be sealed: it is sealed already, or a file changed meanwhile.

    Args:
        problem: What is wrong, and what to do.
        path: Absolute path of the file.
        has_changed: Whether it changed while it was read.
    """

    def __init__(
        self, problem: str, *, path: str | os.PathLike[str], has_changed: bool = False
    ) -> None:
        self.problem, self.has_changed = printable(problem), has_changed
        self.path = os.fspath(path)
        super().__init__(f"Could not seal '{shown(self.path)}': {problem}")

    @property
    def exit_code(self) -> int:
        """A file that changed is a finding."""
        return 1 if self.has_changed else 2


class RankError(ShardproofError):
    """The ranks of a job can't do something together; the message names who is why.

    A rank has not answered in time, was interrupted, can't be reached, sees another directory,
    asks for something else, or runs another version.

    Args:
        problem: Which rank, on which host, and what is the matter with it.
    """

    _EXIT_CODE = 3  # what they were to check was not checked


class UnsyncedError(ShardproofError, OSError):
    """What was written is there, whole and under its name, but may not survive a power cut.

    The directory that has the name could not be synced. A failed sync is not to be repeated
    (fsync(2)): what is to be there for good is written anew.

    Args:
        path: Absolute path of what is there.
        errno: What the operating system said.
    """

    _EXIT_CODE = 3  # the right bytes are there, perhaps not for good

    def __init__(self, path: str | os.PathLike[str], errno: int | None = None) -> None:
        self.path = os.fspath(path)
        said = os.strerror(errno) if errno else "no reason was given"
        super().__init__(
            f"'{shown(self.path)}' exists, but may not survive a power cut: its directory "
            f"could not be synced: {said}; see to the disk, then write it again"
        )
        self.errno = errno


class FetchError(ShardproofError, OSError, RuntimeError):
    """A shard can't be fetched whole and proven; nothing wrong is left under its name.

    It is an `OSError`, as the errors of other clients are, and a `RuntimeError`, which callers of
    other fetching code catch.

    Args:
        problem: What is wrong, what was expected, what to do.
        url: Where it was to come from, without credentials.
        path: Absolute path to which.
        causes: What ended each attempt, in order.
    """

    def __init__(
        self,
        problem: str,
        *,
        url: str = "",
        path: str | os.PathLike[str] = "",
        causes: Sequence[str] = (),
    ) -> None:
        self.problem = printable(problem)
        self.url = url
        self.path = os.fspath(path)
        self.causes = tuple(causes)
        text = f"Could not fetch '{shown(url)}' to '{shown(self.path)}': " if url else ""
        text, n_before = text + problem, 0
        for cause, equal in itertools.groupby(self.causes):
            first, n_before = n_before + 1, n_before + len(list(equal))
            which = f"attempt {first}" if first == n_before else f"attempts {first} to {n_before}"
            text += f"\n  - {which}: {cause}"
        super().__init__(text)

    @property
    def exit_code(self) -> int | None:
        """2 of an address or a name that nothing can have, 3 where the host can't be reached."""
        cause = self.__cause__
        if isinstance(cause, SourceError):
            is_usage = cause.kind == "unusable" and isinstance(cause.__cause__, WRONG_USAGE)
        else:
            is_usage = isinstance(cause, OSError) and is_too_long(cause)
        if is_usage:
            return 2
        return 3 if isinstance(cause, UnsyncedError) or is_unreached(self) else None


class FetchTimeoutError(FetchError, TimeoutError):
    """A shard can't be fetched in the time that it was given."""


SourceErrorKind = Literal[
    "broken", "late", "refused", "astray", "other-bytes", "no-parts", "unusable", "invalid"
]
"""What went wrong with a source; a fetch decides by it what to do next."""


class SourceError(FetchError):
    """A source doesn't give what it was asked for.

    Args:
        problem: What it did instead.
        kind: What went wrong. ``"broken"``: the answer broke off, or could not be had for now.
            ``"late"``: it did not come in time. ``"refused"``: the source says no. ``"astray"``:
            the address leads nowhere. ``"other-bytes"``: the bytes are not those of the file.
            ``"no-parts"``: nor would other parts of the file be. ``"unusable"``: it makes no sense
            to ask again. ``"invalid"``: the source does not do what a `Source` promises.
        retry_after: Seconds to wait before it is asked again, where the source says so.

    Raises:
        ValueError: No such kind.

    Example:
        >>> SourceError("it answers 503", retry_after=5.0).kind
        'broken'
    """

    def __init__(
        self, problem: str, *, kind: SourceErrorKind = "broken", retry_after: float | None = None
    ) -> None:
        if kind not in get_args(SourceErrorKind):
            words = ", ".join(get_args(SourceErrorKind))
            raise ValueError(f"kind: expected one of {words}, found '{shown(str(kind))}'")
        self.kind = kind
        self.retry_after = retry_after
        super().__init__(problem)


class RevisionError(SourceError):
    """Which revision is meant can't be found out, so that nothing can be fetched or planned."""


class CheckpointError(ShardproofError):
    """A checkpoint can't be written, read or proven.

    Args:
        problem: What is wrong, what was expected and found, and what to do.
        path: Absolute path of the file, or its address.
    """

    _EXIT_CODE: int | None = None

    def __init__(self, problem: str, *, path: str | os.PathLike[str]) -> None:
        self.problem = printable(problem)
        self.path = os.fspath(path)
        super().__init__(f"Checkpoint file '{shown(self.path)}': {problem}")

    @property
    def exit_code(self) -> int | None:
        """3 where the file system failed, or did not let it be seen."""
        cause = self.__cause__
        is_unseen = isinstance(cause, OSError) and may_be_whole(cause.errno)
        return 3 if is_unseen else self._EXIT_CODE


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint, or one of its shards is gone."""

    _EXIT_CODE = 2


class ReceiptError(ShardproofError):
    """The work on a shard can't be planned, done or recorded.

    Args:
        problem: What is wrong, and what to do about it.
        path: The plan directory, or the file that it is about; no text where there is none.
        index: The shard, where it is about one.
    """

    def __init__(
        self, problem: str, *, path: str | os.PathLike[str] = "", index: int | None = None
    ) -> None:
        super().__init__(problem)
        self.path = os.fspath(path)
        self.index = index


class ShardCompletedError(ReceiptError):
    """The shard is done: there is nothing to claim."""


class ShardClaimedError(ReceiptError):
    """Another worker holds the shard, and is not known to be gone."""


class ClaimLostError(ReceiptError):
    """Another worker took the shard over: what this one did for it does not count."""

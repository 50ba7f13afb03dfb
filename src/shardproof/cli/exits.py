"""How every command ends: one mapping from what went wrong to an exit code, and to words.

0 every promise is kept; 1 findings; 2 no readable promise, or wrong usage; 3 something could not be
looked at: the disk failed, or a host can't be reached; 130, 143 and 129 are `signals`'.
"""

import contextlib
import dataclasses
import errno
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import click

from shardproof._base.messages import WRONG_USAGE, is_unreached, printable, shown, told
from shardproof._base.names import MAX_NAME_BYTES
from shardproof.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    FetchError,
    SealError,
    ShardproofError,
    ShardReadError,
    ShardValidationError,
    SourceError,
    UnsyncedError,
)
from shardproof.report import Report, is_conclusive

__all__ = [
    "COULD_NOT_LOOK",
    "FINDINGS",
    "KEPT",
    "NO_PROMISE",
    "PathOutcome",
    "code_of",
    "end_with",
    "errors_end_it",
    "may_be_whole",
    "outcome_of",
    "warn",
    "words_of",
]

KEPT, FINDINGS, NO_PROMISE, COULD_NOT_LOOK = range(4)

_EXPECTED = (ShardproofError, ImportError, OSError, ValueError)
"""What a command's work may raise; anything else is a mistake of ours."""


class _Result(Protocol):
    @property
    def exit_code(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=_Result)


@dataclasses.dataclass(frozen=True, slots=True)
class PathOutcome(Generic[R]):
    """What became of one path that a command was given: a result, or why there is none.

    Attributes:
        path: The path.
        result: What was found there; None where nothing could be.
        error: Why there is no result, or none that says much; empty otherwise.
        exit_code: What the command ends with if there is nothing worse.
    """

    path: str
    result: R | None
    error: str
    exit_code: int

    @classmethod
    def failed(cls, path: str, error: BaseException) -> "PathOutcome[R]":
        """Return the outcome that an error stands for."""
        return cls(path, None, words_of(error, "look at", path), code_of(error))

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        if self.result is not None:
            return self.result.to_dict()
        path = _absolute(self.path)
        return {"path": path, "ok": False, "exit_code": self.exit_code, "error": self.error}


def outcome_of(path: str, look: Callable[[], R]) -> PathOutcome[R]:
    """Return what a look at a path gives, or the outcome that its error stands for."""
    try:
        result = look()
    except _EXPECTED as error:
        return PathOutcome.failed(path, error)
    return PathOutcome(path, result, "", result.exit_code)


@contextlib.contextmanager
def errors_end_it(
    verb: str, path: str, *, refused: int = NO_PROMISE, as_json: bool = False
) -> Iterator[None]:
    """End the command by the exit code and the words of whatever its work raises."""
    try:
        yield
    except _EXPECTED as error:
        json_of = path if as_json else None
        end_with(words_of(error, verb, path), code_of(error, refused=refused), json_of=json_of)


def code_of(error: BaseException, *, refused: int = NO_PROMISE) -> int:
    """Return the exit code that an error stands for.

    Args:
        error: What the work of a command raised.
        refused: The code of a checkpoint or a file to be fetched that is not as it should be.
    """
    if isinstance(error, ShardValidationError):
        return error.report.exit_code
    if isinstance(error, (ShardReadError, UnsyncedError)):
        return COULD_NOT_LOOK
    if isinstance(error, (FetchError, SourceError)):
        return _code_of_fetch(error, refused)
    if isinstance(error, CheckpointError) and not isinstance(error, CheckpointNotFoundError):
        cause = error.__cause__
        is_unseen = isinstance(cause, OSError) and may_be_whole(cause.errno)
        return COULD_NOT_LOOK if is_unseen else refused
    if isinstance(error, (ShardproofError, ImportError, ValueError)):
        return FINDINGS if isinstance(error, SealError) and error.has_changed else NO_PROMISE
    return _code_of_system(error)


def _code_of_fetch(error: BaseException, refused: int) -> int:
    cause = error.__cause__
    if isinstance(cause, UnsyncedError):
        return COULD_NOT_LOOK  # the right bytes are there, perhaps not for good
    # Wrong usage: no file system can be made of the address, or of the name no file.
    if isinstance(cause, SourceError):
        is_usage = cause.kind == "unusable" and isinstance(cause.__cause__, WRONG_USAGE)
    else:
        is_usage = isinstance(cause, OSError) and _code_of_system(cause) == NO_PROMISE
    if is_usage:
        return NO_PROMISE
    return COULD_NOT_LOOK if is_unreached(error) else refused


def _code_of_system(error: BaseException) -> int:
    """Return 3; or 2 of a name that is too long for anything to have it."""
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return COULD_NOT_LOOK
    names = os.fsencode(error.filename or "").split(b"/")
    # The path of all above it may be too long, too: then there may be something.
    return NO_PROMISE if max(map(len, names)) > MAX_NAME_BYTES else COULD_NOT_LOOK


def may_be_whole(number: int | None) -> bool:
    """Whether a file of which the system gave this errno may be whole: it was not seen."""
    return not is_conclusive(number) or number in {errno.EACCES, errno.EPERM}


def words_of(error: BaseException, verb: str, path: str | os.PathLike[str]) -> str:
    """Return what is said of an error: what the system says gets the words that it lacks."""
    if isinstance(error, (ShardproofError, ImportError, ValueError)):
        return told(error)
    return f"Could not {verb} '{shown(_absolute(path))}': {told(error)}"


def _absolute(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def warn(problem: object) -> None:
    """Print what should be known on standard error."""
    click.echo(printable(str(problem)), err=True)


def end_with(problem: str, code: int, *, json_of: str | None = None) -> NoReturn:
    """Say what is wrong, as JSON too if it is of a path, and end the command by an exit code."""
    warn(problem)
    if json_of is not None:
        outcome: PathOutcome[Report] = PathOutcome(json_of, None, problem, code)
        click.echo(json.dumps(outcome.to_dict(), indent=2))
    raise click.exceptions.Exit(code)

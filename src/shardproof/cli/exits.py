"""How every command ends: one mapping from what went wrong to an exit code, and to words."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import click

from shardproof._base.messages import shown, told
from shardproof._base.opening import is_too_long
from shardproof.cli.output import print_json, warn
from shardproof.errors import ShardproofError

KEPT, FINDINGS, NO_MANIFEST, COULD_NOT_CHECK = range(4)

_EXPECTED = (ShardproofError, ImportError, OSError, ValueError)
"""What a command's work may raise; anything else is a mistake of ours."""


class _Result(Protocol):
    @property
    def exit_code(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=_Result)


@dataclasses.dataclass(frozen=True, slots=True)
class PathOutcome(Generic[R]):
    """What became of one path that a command was given: a result, or why there is none."""

    path: str
    result: R | None
    error: str  # why there is no result, or none that says much; empty otherwise
    exit_code: int  # if there is nothing worse
    seconds: float | None = None

    @classmethod
    def failed(cls, path: str, error: BaseException) -> "PathOutcome[R]":
        """Say what is wrong, and return the outcome that an error stands for."""
        warn(problem := words_of(error, "check", path))
        return cls(path, None, problem, code_of(error))

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        ended = {"ok": self.exit_code == KEPT, "exit_code": self.exit_code}
        about = {"path": absolute(self.path)} if self.result is None else self.result.to_dict()
        return about | ended | ({"error": self.error} if self.error else {})


def outcome_of(path: str, look: Callable[[], R]) -> PathOutcome[R]:
    """Return what a look at a path gives, or the outcome that its error stands for."""
    begin = time.monotonic()
    try:
        result = look()
    except _EXPECTED as error:
        return PathOutcome.failed(path, error)
    return PathOutcome(path, result, "", result.exit_code, time.monotonic() - begin)


@contextlib.contextmanager
def errors_end_it(verb: str, path: str, *, refused: int = NO_MANIFEST) -> Iterator[None]:
    """End the command by the exit code and the words of whatever its work raises."""
    try:
        yield
    except _EXPECTED as error:
        end_with(words_of(error, verb, path), code_of(error, refused=refused), path=path)


def code_of(error: BaseException, *, refused: int = NO_MANIFEST) -> int:
    """Return the exit code of an error; ``refused`` is that of one that has none of its own."""
    if isinstance(error, ShardproofError):
        return refused if error.exit_code is None else error.exit_code
    is_usage = isinstance(error, (ImportError, ValueError))
    is_usage |= isinstance(error, OSError) and is_too_long(error)
    return NO_MANIFEST if is_usage else COULD_NOT_CHECK


def words_of(error: BaseException, verb: str, path: str | os.PathLike[str]) -> str:
    """Return what is said of an error: what the system says gets the words that it lacks."""
    if isinstance(error, (ShardproofError, ImportError, ValueError)):
        return told(error)
    return f"Could not {verb} '{shown(absolute(path))}': {told(error)}"


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path from the root; an address as it is."""
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def end_with(problem: str, code: int, *, path: str | None = None) -> NoReturn:
    """Say what is wrong, as JSON too where that is asked for, and end the command."""
    warn(problem)
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("as_json"):
        # An address may have a password in it, which the words about it leave out.
        about = {} if path is None or "://" in path else {"path": absolute(path)}
        print_json({**about, "error": problem}, code)
    raise click.exceptions.Exit(code)

"""What becomes of the checkpoints that a path on the command line means."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from shardproof._base.messages import told
from shardproof.cli.checkpoint._paths import METADATA, could_not, prefixes_of, warn
from shardproof.cli.paths import code_unseen
from shardproof.errors import CheckpointNotFoundError, ShardproofError

if TYPE_CHECKING:
    from shardproof.checkpoint import VerificationResult
    from shardproof.report import Finding

__all__ = ["Level", "Outcome", "outcomes_of"]

Level = Literal["complete", "valid"]


class Outcome(NamedTuple):
    """What became of one checkpoint: a result, and the reason why it is none that says much."""

    prefix: str
    result: "VerificationResult | None"
    error: str
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        said: dict[str, Any] = {"ok": False, "error": self.error}
        if self.result is not None:
            said = self.result.to_dict() | {"warnings": list(self.result.warnings)}
        return {"prefix": self.prefix} | said | {"exit_code": self.exit_code}


def outcomes_of(path: str, level: Level, *, quiet: bool) -> Iterator[Outcome]:
    """Yield what became of each; warn of unfinished steps, unless it is to be quiet."""
    prefixes = []
    try:
        prefixes = prefixes_of(path)
    except CheckpointNotFoundError as error:
        yield Outcome(path, None, told(error), 2)
    except OSError as error:
        yield Outcome(path, None, could_not("look at", path, error), code_unseen(error))
        return
    for prefix in prefixes:
        yield _verified(prefix, level)
    if not _is_prefix(path, prefixes):
        yield from _unfinished(path, quiet)


def _is_prefix(path: str, prefixes: list[str]) -> bool:
    """Whether a path means that one checkpoint, of whose directory nothing more is asked."""
    prefix = path.removesuffix(METADATA)
    return prefixes == [prefix if "://" in path else os.path.abspath(prefix)]


def _unfinished(path: str, quiet: bool) -> Iterator[Outcome]:
    """Warn of steps without metadata; yield an outcome only where nobody could look."""
    from shardproof.checkpoint import unfinished_steps  # noqa: PLC0415 - not for other commands

    try:
        steps = unfinished_steps(path.removesuffix(METADATA))
    except OSError as error:
        yield Outcome(path, None, could_not("look at", path, error), code_unseen(error))
        return
    for step in [] if quiet else steps:
        warn(step)


def _verified(prefix: str, level: Level) -> Outcome:
    from shardproof.checkpoint import ShardFileVerifier  # noqa: PLC0415 - not for other commands

    try:
        result = ShardFileVerifier().verify_checkpoint(prefix, level=level)
    except (ShardproofError, ImportError, ValueError) as error:
        return Outcome(prefix, None, told(error), 2)
    except OSError as error:
        return Outcome(prefix, None, could_not("look at", prefix, error), code_unseen(error))
    names_no_shard = not result.n_files  # its metadata can't be read
    code = _code_of_metadata(result.findings) if names_no_shard else result.exit_code
    return Outcome(prefix, result, "\n".join(result.errors) if names_no_shard else "", code)


def _code_of_metadata(findings: "Sequence[Finding]") -> int:
    from shardproof.checkpoint.verify._inspect import is_unseen  # noqa: PLC0415 - who found them needs it too

    return 3 if any(map(is_unseen, findings)) else 2

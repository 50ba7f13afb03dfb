"""The checkpoints of a directory, by step."""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardproof._base.messages import joined, printable, shown, told
from shardproof.checkpoint.format._metadata import CheckpointMetadata
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._storage import Place
from shardproof.checkpoint.verify._inspect import is_unseen, refuse_blind
from shardproof.checkpoint.verify._verifier import verify
from shardproof.errors import CheckpointError
from shardproof.report import Finding, Level

__all__ = ["Candidate", "is_whole", "newest_first"]

logger = logging.getLogger("shardproof.checkpoint")


class Candidate(NamedTuple):
    """A checkpoint whose metadata can be read."""

    place: Place
    metadata: CheckpointMetadata


def _refuse_unseen(findings: Iterable[Finding]) -> None:
    for finding in findings:
        if is_unseen(finding):
            raise OSError(finding.errno, f"could not look: {finding.found}", str(finding.path))


def newest_first(places: Sequence[Place]) -> list[Candidate]:
    """Return those whose metadata can be read: the highest step first, then the latest time.

    Raises:
        OSError: Metadata could not be looked at: nobody knows whether they are the newest.
    """
    found = []
    for place in places:
        try:
            found.append(Candidate(place, read_metadata(place)))
        except CheckpointError as error:
            refuse_blind(error)
            logger.warning("Passing over a checkpoint: %s", told(error))
    return sorted(
        found,
        key=lambda found: (found.metadata.step, _moment(found.metadata.timestamp)),
        reverse=True,
    )


def _moment(timestamp: str) -> tuple[str, str]:
    """Return what is ordered as moments are: a fraction of a second may have any length."""
    seconds, _, fraction = timestamp.removesuffix("Z").partition(".")
    return seconds, fraction.rstrip("0")


def is_whole(candidate: Candidate, level: Level) -> bool:
    """Whether a checkpoint is whole; the log says why it isn't.

    Raises:
        OSError: It could not be looked at, and may be whole (EIO, ESTALE, EACCES).
    """
    result = verify(candidate.place, level)
    _refuse_unseen(result.findings)
    reasons = [
        *result.errors,
        *(f"{shown(path)}: no checksum is stated" for path in result.unproven),
    ]
    if reasons:
        prefix = candidate.place.storage.address(candidate.place.path)
        step, text = candidate.metadata.step, joined(reasons)
        logger.warning("Passing over step %d of '%s': %s", step, shown(prefix), printable(text))
    return not reasons

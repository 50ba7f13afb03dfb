"""Whether a shard of tokens is what it must be, and each sequence the one that its id was made of.

An id is a checksum of a sequence that is on the disk already. Level ``valid`` proves it.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from shardproof._base import fanout
from shardproof._base.messages import printable, shown
from shardproof.checks import check
from shardproof.datasets.tokens._id_forms import IdForm, form_of, wrong_sequences
from shardproof.datasets.tokens._npy import HeaderError, read_header, wrong_size
from shardproof.datasets.tokens._token_shard import IDS, Items, TokenShard, open_tokens
from shardproof.errors import ShardReadError, ShardValidationError
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.report import Finding, FindingKind, Report

__all__ = ["OpenShard", "ProofLevel", "check_tokens", "open_proven"]

logger = logging.getLogger("shardproof.fetching")

ProofLevel = Literal["complete", "valid"]
"""How hard a shard of tokens is looked at: none is opened that is only ``present``."""

_FORMAT = "tokens"
_CHUNK_BYTES = 2**22


class OpenShard(NamedTuple):
    """A shard of tokens that was proven, and is open.

    Attributes:
        shard: What it must be.
        tokens: Its tokens.
        ids: The ids of its sequences.
        n_sequences: How many there are of both.
    """

    shard: TokenShard
    tokens: Items
    ids: Items
    n_sequences: int

    def close(self) -> None:
        """Close both files."""
        self.tokens.close()
        self.ids.close()


def open_proven(shard: TokenShard, level: ProofLevel = "complete") -> OpenShard:
    """Return a shard's open files, if they are what they must be.

    Raises:
        ShardValidationError: They are not; notes say what was expected and what was found.
        ShardReadError: They changed since the look, or can't be read.
        ManifestError: There is no such directory.
        OSError: It can't be looked at.
    """
    _raise_for(check_tokens(shard))
    tokens, ids = open_tokens(shard)
    try:
        found = OpenShard(shard, tokens, ids, _agreed(shard, tokens.n_items, ids.n_items))
        if level == "valid":
            findings = tuple(_wrong_sequences(found))
            _raise_for(Report(Path(shard.root), _FORMAT, level, 2, findings))
    except BaseException:
        tokens.close()
        ids.close()
        raise
    return found


def check_tokens(shard: TokenShard) -> Report:
    """Return what a look at the two files of a shard found; no token is read.

    Args:
        shard: What they must be.

    Raises:
        ManifestError: There is no such directory.
        OSError: It can't be looked at.
    """
    tokens, ids = shard.names
    manifest = Manifest(
        root=Path(shard.root),
        path=Path(shard.root, tokens),
        format=_FORMAT,
        files=[PromisedFile(name=tokens), PromisedFile(name=ids)],
        probe=functools.partial(_probe, tokens, shard.dtype),
        contradictions=functools.partial(_contradictions, shard),
    )
    return check(manifest, level="complete", workers=1, list_first=False)


def _raise_for(report: Report) -> None:
    """Do nothing when all is well; else raise, with a note of what is wrong for each finding."""
    try:
        report.raise_for_findings()
    except ShardValidationError as error:
        for finding in report.findings:
            error.add_note(
                f"{shown(finding.path)}: expected {finding.expected}, found {finding.found}"
            )
        raise


def _probe(
    tokens: str, token_dtype: np.dtype[Any], promised: PromisedFile, fd: int, size: int
) -> Mismatch | None:
    try:
        header = read_header(fd)
    except HeaderError as error:
        return error.mismatch
    expected = token_dtype if promised.name == tokens else IDS
    if header.dtype != expected:
        return Mismatch(expected=f"items of type {expected.str}", found=header.dtype.str)
    return wrong_size(header, size)


def _contradictions(shard: TokenShard) -> Iterator[Contradiction]:
    """What the two files say of each other, where both can be read."""
    if shard.allow_length_mismatch:
        return
    with contextlib.suppress(OSError, ShardValidationError):  # findings of their own
        tokens, ids = open_tokens(shard)
        with contextlib.closing(tokens), contextlib.closing(ids):
            yield from _wrong_counts(shard, tokens.n_items, ids.n_items)


def _wrong_counts(shard: TokenShard, n_tokens: int, n_ids: int) -> Iterator[Contradiction]:
    tokens, ids = shard.names
    n_sequences, rest = divmod(n_tokens, shard.sequence_length)
    if rest:
        expected = f"a multiple of {shard.sequence_length} tokens"
        yield Contradiction(tokens, Mismatch(expected=expected, found=f"{n_tokens}, {rest} over"))
    if n_ids != n_sequences:
        expected = f"{n_sequences} ids, for {n_tokens} tokens in sequences of "
        yield Contradiction(
            ids, Mismatch(expected=f"{expected}{shard.sequence_length}", found=str(n_ids))
        )


def _agreed(shard: TokenShard, n_tokens: int, n_ids: int) -> int:
    """How many sequences there are to read."""
    for name, mismatch in _wrong_counts(shard, n_tokens, n_ids):
        if not shard.allow_length_mismatch:
            problem = f"expected {mismatch.expected}, found {mismatch.found}: it was just replaced"
            raise ShardReadError(problem, path=os.path.join(shard.root, name))
        logger.warning(
            "'%s': expected %s, found %s; what has no partner is left out",
            shown(os.path.join(shard.root, name)),
            printable(mismatch.expected),
            printable(mismatch.found),
        )
    return min(n_tokens // shard.sequence_length, n_ids)


def _wrong_sequences(found: OpenShard) -> Iterator[Finding]:
    length, n = found.shard.sequence_length, found.n_sequences
    form = form_of(found.tokens, found.ids, length, n)
    step = max(1, _CHUNK_BYTES // (length * found.shard.dtype.itemsize))
    compare = functools.partial(_compare, found, form, step)
    runs = fanout.over_threads(compare, range(0, n, step), fanout.available_cpus(), chunk=1)
    with contextlib.closing(runs):
        wrong = [index for _, indices in runs for index in indices]
    if wrong:
        some = ", ".join(map(str, wrong[:5])) + (", ..." if len(wrong) > 5 else "")
        expected = f"{n} sequences of which the ids were made (stored {form})"
        found_ = f"{len(wrong)} others: {some}"
        yield Finding(FindingKind.DIGEST, found.shard.paths[0], expected, found_)
    elif form.has_header:
        logger.warning(
            "'%s': the ids were made of the file with its header, so that none proves its last "
            "%s tokens",
            shown(found.shard.paths[0]),
            shown(str(found.tokens.n_in_header)),
        )


def _compare(found: OpenShard, form: IdForm, step: int, starts: Sequence[int]) -> list[int]:
    """Which of the sequences from some places on are not those that their ids were made of."""
    n = found.n_sequences
    parts = (range(start, min(start + step, n)) for start in starts)
    args = found.tokens, found.ids, form, found.shard.sequence_length
    return [index for numbers in parts for index in wrong_sequences(*args, numbers)]

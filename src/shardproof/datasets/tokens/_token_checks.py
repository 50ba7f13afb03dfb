"""Whether a shard of tokens is what it must be, and each sequence what its id was made of."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shardproof._base import fanout
from shardproof._base.messages import printable, shown
from shardproof._base.opening import Descriptor, Read
from shardproof._base.work import apart
from shardproof.checks import check
from shardproof.datasets.tokens._token_files import IDS, Items, TokenShard, open_tokens, read_header
from shardproof.errors import ShardReadError
from shardproof.manifest import Contradiction, ExpectedFile, Manifest, Mismatch
from shardproof.probes.token_ids import IdRecipe, TokensWithIds, id_of, told_of
from shardproof.report import Finding, FindingKind, Report, ShardValidationError

logger = logging.getLogger("shardproof.fetching")

ProofLevel = Literal["complete", "valid"]  # none is opened that is only ``present``
_FORMAT = "tokens"
_CHUNK_BYTES = 2**22


def sequence_id(sequence: npt.NDArray[np.integer]) -> int:
    """Return the id of a sequence: a checksum of its bytes as they are stored, little-endian.

    Example:
        >>> hex(sequence_id(np.arange(4, dtype=np.uint32)))
        '0xfa9e3d6af5bd1df6'
    """
    return int.from_bytes(id_of([np.ascontiguousarray(sequence).data]), "little")


class OpenShard(NamedTuple):
    """A shard of tokens that was proven, and is open: so many sequences, and an id of each."""

    shard: TokenShard
    tokens: Items
    ids: Items
    n_sequences: int

    def close(self) -> None:
        self.tokens.close()
        self.ids.close()


def open_proven(shard: TokenShard, level: ProofLevel = "complete") -> OpenShard:
    """Return a shard's open files, if they are what they must be."""
    # In another thread, since an interrupt might lose a descriptor.
    _raise_for(apart(lambda _: check_tokens(shard)))
    tokens, ids = apart(lambda _: open_tokens(shard))
    try:
        for name, expected, here in _wrong_counts(shard, tokens.header.n_items, ids.header.n_items):
            path = os.path.join(shard.files.root, name)
            if not shard.files.allow_length_mismatch:
                problem = f"expected {expected}, found {here}"
                raise ShardReadError(f"{problem}: it was just replaced", path=path)
            logger.warning(
                "'%s': expected %s, found %s; what has no partner is left out",
                shown(path),
                printable(expected),
                printable(here),
            )
        n_sequences = min(tokens.header.n_items // shard.files.sequence_length, ids.header.n_items)
        found = OpenShard(shard, tokens, ids, n_sequences)
        if level == "valid":
            findings = tuple(_wrong_sequences(found))
            _raise_for(Report(Path(shard.files.root), _FORMAT, level, 2, findings))
    except BaseException:
        tokens.close()
        ids.close()
        raise
    return found


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


def check_tokens(shard: TokenShard) -> Report:
    """Return what a check of the two files of a shard found; no token is read."""
    tokens, ids = shard.names
    n_items = dict[str, int]()

    def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
        found = read_header(read, size, shard.files.dtype if promised.name == tokens else IDS)
        if isinstance(found, Mismatch):
            return found
        n_items[promised.name] = found.n_items
        return None

    def contradictions() -> Iterator[Contradiction]:  # asked when both were looked at
        if len(n_items) == 2 and not shard.files.allow_length_mismatch:
            yield from _wrong_counts(shard, n_items[tokens], n_items[ids])

    files = [ExpectedFile(name=tokens), ExpectedFile(name=ids)]
    laws: dict[str, Any] = {"probe": probe, "contradictions": contradictions}
    manifest = Manifest.at(shard.files.root, tokens, _FORMAT, files, **laws)
    return check(manifest, level="complete", workers=1, list_first=False)


def _wrong_counts(shard: TokenShard, n_tokens: int, n_ids: int) -> Iterator[Contradiction]:
    """Yield how the numbers of tokens and of ids contradict each other."""
    tokens, ids = shard.names
    length = shard.files.sequence_length
    n_sequences, rest = divmod(n_tokens, length)
    if rest:
        yield Contradiction(tokens, f"a multiple of {length} tokens", f"{n_tokens}, {rest} over")
    if n_ids != n_sequences:
        expected = f"{n_sequences} ids, for {n_tokens} tokens in sequences of {length}"
        yield Contradiction(ids, expected, str(n_ids))


def _wrong_sequences(found: OpenShard) -> Iterator[Finding]:
    """Yield a finding if there are sequences other than those that the ids were made of."""
    files, n = found.shard.files, found.n_sequences
    n_bytes = files.sequence_length * files.dtype.itemsize
    tokens, ids = found.tokens.held(), found.ids.held()
    shard = TokensWithIds(
        *(Descriptor(tokens.fd), found.tokens.header, Descriptor(ids.fd), found.ids.header)
    )
    recipe = shard.recipe_of(n_bytes) or IdRecipe(n_bytes)
    step = max(1, _CHUNK_BYTES // n_bytes)

    def compare(starts: Sequence[int]) -> list[int]:
        parts = (range(start, min(start + step, n)) for start in starts)
        return [index for numbers in parts for index in shard.wrong(recipe, numbers)]

    wrong = fanout.collected(compare, range(0, n, step), fanout.available_cpus(), chunk=1)
    if mismatch := told_of(wrong, n):
        yield Finding(FindingKind.DIGEST, found.shard.paths[0], mismatch.expected, mismatch.found)
    elif recipe.has_header:
        logger.warning(
            "'%s': the ids were made of the file with its header, so that none proves its last "
            "%s bytes",
            shown(found.shard.paths[0]),
            shown(str(shard.tokens.start)),
        )

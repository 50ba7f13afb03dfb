"""Whether a shard of tokens is what it must be, and each sequence the one that its id was made of.

Level ``valid`` proves each sequence by its id: the blake2b digest of the sequence's bytes, in 8
bytes that are read as a little-endian number. templar's own preparation script stores something
else: numpy makes floating-point numbers of numbers on both sides of 2**63, and the script stores
their bits. It also reads the ``.npy`` file from its first byte on, so that its first sequence
begins with the header.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shardproof._base import fanout
from shardproof._base.messages import printable, shown
from shardproof._base.work import apart
from shardproof.checks import check
from shardproof.datasets.tokens._npy import HeaderError, read_header, wrong_size
from shardproof.datasets.tokens._token_files import IDS, Items, TokenShard, open_tokens
from shardproof.errors import ShardReadError, ShardValidationError
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.report import Finding, FindingKind, Report

logger = logging.getLogger("shardproof.fetching")

ProofLevel = Literal["complete", "valid"]
"""How hard a shard of tokens is looked at: none is opened that is only ``present``."""

_FORMAT = "tokens"
_CHUNK_BYTES = 2**22
_LOOKED_AT = 16
_LOOKED_AT_BYTES = 2**24


def sequence_id(sequence: npt.NDArray[np.integer]) -> int:
    """Return the id of a sequence: a checksum of its bytes as they are stored, little-endian.

    Example:
        >>> hex(sequence_id(np.arange(4, dtype=np.uint32)))
        '0xfa9e3d6af5bd1df6'
    """
    digest = hashlib.blake2b(np.ascontiguousarray(sequence).data, digest_size=8).digest()
    return int.from_bytes(digest, "little")


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
        for name, mismatch in _wrong_counts(shard, tokens.header.n_items, ids.header.n_items):
            path = os.path.join(shard.files.root, name)
            if not shard.files.allow_length_mismatch:
                problem = f"expected {mismatch.expected}, found {mismatch.found}"
                raise ShardReadError(f"{problem}: it was just replaced", path=path)
            logger.warning(
                "'%s': expected %s, found %s; what has no partner is left out",
                shown(path),
                printable(mismatch.expected),
                printable(mismatch.found),
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
    """Return what a look at the two files of a shard found; no token is read."""
    tokens, ids = shard.names
    root = Path(shard.files.root)

    def probe(promised: PromisedFile, fd: int, size: int) -> Mismatch | None:
        try:
            header = read_header(fd)
        except HeaderError as error:
            return error.mismatch
        expected = shard.files.dtype if promised.name == tokens else IDS
        if header.dtype != expected:
            return Mismatch(expected=f"items of type {expected.str}", found=header.dtype.str)
        return wrong_size(header, size)

    def contradictions() -> Iterator[Contradiction]:
        if shard.files.allow_length_mismatch:
            return
        with contextlib.suppress(OSError, ShardValidationError):  # findings of their own
            both = open_tokens(shard)
            with contextlib.closing(both[0]), contextlib.closing(both[1]):
                yield from _wrong_counts(shard, both[0].header.n_items, both[1].header.n_items)

    manifest = Manifest(
        root=root,
        path=root / tokens,
        format=_FORMAT,
        files=[PromisedFile(name=tokens), PromisedFile(name=ids)],
        probe=probe,
        contradictions=contradictions,
    )
    return check(manifest, level="complete", workers=1, list_first=False)


def _wrong_counts(shard: TokenShard, n_tokens: int, n_ids: int) -> Iterator[Contradiction]:
    """Yield how the numbers of tokens and of ids contradict each other."""
    tokens, ids = shard.names
    length = shard.files.sequence_length
    n_sequences, rest = divmod(n_tokens, length)
    if rest:
        expected = f"a multiple of {length} tokens"
        yield Contradiction(tokens, Mismatch(expected=expected, found=f"{n_tokens}, {rest} over"))
    if n_ids != n_sequences:
        expected = f"{n_sequences} ids, for {n_tokens} tokens in sequences of {length}"
        yield Contradiction(ids, Mismatch(expected=expected, found=str(n_ids)))


def _wrong_sequences(found: OpenShard) -> Iterator[Finding]:
    """Yield a finding if there are sequences other than those that the ids were made of."""
    length, n = found.shard.files.sequence_length, found.n_sequences
    form = _form_of(found)
    step = max(1, _CHUNK_BYTES // (length * found.shard.files.dtype.itemsize))

    def compare(starts: Sequence[int]) -> list[int]:
        parts = (range(start, min(start + step, n)) for start in starts)
        return [index for numbers in parts for index in _wrong_among(found, form, numbers)]

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


class IdForm(NamedTuple):
    """In which form all ids of a shard are stored."""

    is_float: bool = False  # as the bits of a float64
    has_header: bool = False  # the first sequence begins with the file's header, not behind it

    def __str__(self) -> str:
        number = "as the bits of a float64" if self.is_float else "as numbers"
        return f"{number}, of the file with its header" if self.has_header else number


_FORMS = (IdForm(), IdForm(is_float=True), IdForm(has_header=True), IdForm(True, True))


def _form_of(found: OpenShard) -> IdForm:
    """Return the form in which most of the first ids are right; numbers where none is.

    A shard whose sequences are all right in one form is right in this one.
    """
    n_bytes = found.shard.files.sequence_length * found.tokens.header.dtype.itemsize
    n = min(found.n_sequences, _LOOKED_AT, max(1, _LOOKED_AT_BYTES // n_bytes))
    n_wrong: dict[IdForm, int] = {}
    for form in _FORMS:
        if not form.has_header or found.tokens.n_in_header is not None:
            n_wrong[form] = len(_wrong_among(found, form, range(n)))
            if not n_wrong[form]:
                return form
    return min(n_wrong, key=n_wrong.__getitem__)


def _wrong_among(found: OpenShard, form: IdForm, numbers: range) -> list[int]:
    """Return which sequences of a range are not those that their ids were made of."""
    start, n, length = numbers.start, len(numbers), found.shard.files.sequence_length
    first = start * length - (found.tokens.n_in_header or 0 if form.has_header else 0)
    sequences = found.tokens.read(first, n * length).reshape(n, length)
    made = np.fromiter(map(sequence_id, sequences), np.uint64, n)
    if form.is_float:
        made = made.astype(np.float64).view(np.uint64)
    wrong: list[int] = (start + np.flatnonzero(made != found.ids.read(start, n))).tolist()
    return wrong

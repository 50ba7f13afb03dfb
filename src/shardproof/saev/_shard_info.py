"""The shards of a directory, how many examples each holds, and what is promised of them."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import overload

import msgspec

from shardproof._base import json
from shardproof._base.arguments import checked, count
from shardproof._base.messages import shown
from shardproof._base.names import real_root
from shardproof._base.opening import is_there, permission_denied, refuse_no_path
from shardproof._base.work import apart
from shardproof.checks import check
from shardproof.errors import ManifestPermissionError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest, refuse_names
from shardproof.saev._metadata import (
    LABELS_FILE,
    MAX_COUNT,
    METADATA_FILE,
    SHARDS_FILE,
    AnyPath,
    Metadata,
    read_json,
    write_json,
)


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One entry of ``shards.json``.

    Attributes:
        name: File name, such as ``"acts000000.bin"``.
        n_examples: How many of the file's rows are used, from the first one on.
    """

    # No __post_init__: it would run 100 000 times for entries that were checked as they were
    # decoded. What is wrong in one made by hand is refused by ShardInfo.
    name: str
    n_examples: Count


@dataclasses.dataclass(frozen=True, slots=True)
class ShardInfo:
    """The shards of a directory, in order: ``shards.json``.

    Args:
        shards: The entries.

    Raises:
        TypeError: Something else than a `Shard`, a name that is no text, a count no integer.
        ValueError: A count below 0 or above 2**53.

    Example:
        >>> shard_info = ShardInfo([Shard("acts000000.bin", 4), Shard("acts000001.bin", 2)])
        >>> len(shard_info), shard_info[1].n_examples, [shard.name for shard in shard_info]
        (2, 2, ['acts000000.bin', 'acts000001.bin'])
    """

    shards: Sequence[Shard] = ()

    def __post_init__(self) -> None:
        taken = []
        for shard in self.shards:
            if type(shard) is not Shard:
                raise TypeError(f"shards: expected Shard, found {type(shard).__name__}")
            if type(shard.name) is not str:
                raise TypeError(f"name: expected str, found {type(shard.name).__name__}")
            n_examples = count("n_examples", shard.n_examples, 0, MAX_COUNT)
            is_int = n_examples is shard.n_examples  # and not one of numpy's
            taken.append(shard if is_int else Shard(shard.name, n_examples))
        object.__setattr__(self, "shards", tuple(taken))

    def __len__(self) -> int:
        return len(self.shards)

    @overload
    def __getitem__(self, index: int) -> Shard: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Shard]: ...
    def __getitem__(self, index: int | slice) -> Shard | Sequence[Shard]:
        return self.shards[index]

    def __iter__(self) -> Iterator[Shard]:
        return iter(self.shards)

    @classmethod
    @checked
    def load(cls, shards_dir: AnyPath) -> "ShardInfo":
        """Return what the ``shards.json`` of a directory lists; no shard is looked at.

        Raises:
            ManifestNotFoundError: There is no such directory or file; the text says what is there
                instead and what to do.
            ManifestError: It is not what the protocol describes, or lists a name that could lead
                out of the directory or to two files at once.
        """
        refuse_no_path(shards_dir=shards_dir)
        root = real_root(shards_dir)
        shards = _read_shards(root)
        refuse_names([shard.name for shard in shards], os.path.join(root, SHARDS_FILE))
        return cls(shards)

    @checked
    def dump(self, shards_dir: AnyPath) -> None:
        """Write ``shards.json`` into a directory that exists: whole, or not at all.

        Raises:
            OSError: It could not be written.
        """
        refuse_no_path(shards_dir=shards_dir)
        write_json(self.shards, shards_dir, SHARDS_FILE)

    @checked
    def validate(self, shards_dir: AnyPath) -> None:
        """Do nothing when each listed shard is there: a regular file, not empty, that opens.

        Raises:
            ShardValidationError: Also a `FileNotFoundError`; its text lists every missing, empty,
                unreadable and non-regular file by absolute path, its ``report`` holds them as data.
            ManifestError: There is no such directory, or a listed name is refused.
        """
        refuse_no_path(shards_dir=shards_dir)
        files = [ExpectedFile(name=shard.name) for shard in self.shards]
        manifest = Manifest.at(real_root(shards_dir), SHARDS_FILE, "saev", files)
        apart(lambda _: check(manifest)).raise_for_findings()


def _read_shards(root: str) -> list[Shard]:
    """Return the entries of ``shards.json``, with names that may yet be refused."""
    path = os.path.join(root, SHARDS_FILE)
    return json.decode(read_json(root, SHARDS_FILE), list[Shard], path=path)


def read_manifest(root: str) -> Manifest:
    """Return what is expected: each listed shard, of the one size of all, and labels if any."""
    shards = _read_shards(root)  # Manifest refuses their names
    metadata = Metadata.load(root)
    size = metadata.shard_bytes
    files = [ExpectedFile(name=shard.name, size=size, n_items=shard.n_examples) for shard in shards]
    labels = os.path.join(root, LABELS_FILE)  # which are optional; readers use what is there
    try:
        has_labels = is_there(labels)
    except PermissionError:
        raise ManifestPermissionError(permission_denied(), path=labels) from None
    if has_labels:
        files.append(ExpectedFile(name=LABELS_FILE, size=metadata.labels_bytes))
    laws = functools.partial(_contradictions, metadata, shards)
    return Manifest.at(root, SHARDS_FILE, "saev", files, contradictions=laws)


def _contradictions(metadata: Metadata, shards: Sequence[Shard]) -> Iterator[Contradiction]:
    """Yield what a killed or restarted writer leaves: saev's readers trust the metadata alone."""
    names, n_expected = [s.name for s in shards], [s.n_examples for s in shards]
    n_examples = sum(n_expected)
    if n_examples != metadata.n_examples:
        expected = f"{metadata.n_examples} examples in all, as {METADATA_FILE} says"
        yield Contradiction(SHARDS_FILE, expected, str(n_examples))
    n_shards = {metadata.n_shards, metadata.n_shards + metadata.has_extra_shard}
    if len(shards) not in n_shards:
        counts = " or ".join(map(str, sorted(n_shards)))
        expected = f"{counts} shards for {metadata.n_examples} examples"
        yield Contradiction(SHARDS_FILE, expected, str(len(shards)))
    # Readers find example i in file i // examples_per_shard: an entry may not stand elsewhere.
    usual_names, usual_counts = _names(len(shards)), _counts(metadata, len(shards))
    if names == usual_names and n_expected == usual_counts:
        return
    found = zip(names, n_expected, usual_names, usual_counts, strict=True)
    for index, (name, n, usual, rest) in enumerate(found):
        if name != usual or n != rest:
            expected = f"{usual} with {rest} examples as entry {index}"
            yield Contradiction(SHARDS_FILE, expected, f"{shown(name)} with {n}")
            return


def _names(n_shards: int) -> list[str]:
    """Return the names that saev gives: ``acts000000.bin``, ...; made of halves, which are few."""
    ends = [f"{number:03}.bin" for number in range(1000)]
    begins = (f"acts{number:03}" for number in range(-(-n_shards // 1000)))
    return [begin + end for begin in begins for end in ends][:n_shards]


def _counts(metadata: Metadata, n_shards: int) -> list[int]:
    """Return how many examples each of so many shards has; of those that are too many, none."""
    n_full, rest = divmod(metadata.n_examples, metadata.examples_per_shard)
    counts = [metadata.examples_per_shard] * min(n_full, n_shards) + [rest]
    return (counts + [0] * (n_shards - len(counts)))[:n_shards]

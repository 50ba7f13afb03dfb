"""The shards of a directory, and how many examples each holds."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import msgspec

from shardproof._base import json
from shardproof._base.arguments import checked, count
from shardproof._base.names import real_root
from shardproof._base.opening import refuse_empty
from shardproof.checks import check
from shardproof.manifest import Manifest, PromisedFile, refuse_names
from shardproof.saev._json_files import (
    MAX_COUNT,
    SHARDS_FILE,
    AnyPath,
    Count,
    dump,
    read_bytes,
)

__all__ = ["Shard", "ShardInfo", "read_shards"]


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
        object.__setattr__(self, "shards", tuple(map(_taken, self.shards)))

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
        """Return what ``shards.json`` lists; no shard is looked at.

        Args:
            shards_dir: The directory that holds ``shards.json``.

        Raises:
            ManifestNotFoundError: There is no such directory or file; the text says what is there
                instead and what to do.
            ManifestError: It is not what the protocol describes, or lists a name that could lead
                out of the directory or to two files at once.
        """
        refuse_empty(shards_dir=shards_dir)
        root = real_root(shards_dir)
        shards = read_shards(root)
        refuse_names([shard.name for shard in shards], os.path.join(root, SHARDS_FILE))
        return cls(shards)

    @checked
    def dump(self, shards_dir: AnyPath) -> None:
        """Write ``shards.json`` into a directory that exists: whole, or not at all.

        Args:
            shards_dir: The directory that holds the shards.

        Raises:
            OSError: It could not be written.
        """
        refuse_empty(shards_dir=shards_dir)
        dump(self.shards, shards_dir, SHARDS_FILE)

    @checked
    def validate(self, shards_dir: AnyPath) -> None:
        """Do nothing when each listed shard exists, is a regular file, not empty, and opens.

        Args:
            shards_dir: The directory that holds the shards.

        Raises:
            ShardValidationError: Also a `FileNotFoundError`; its text lists every missing, empty,
                unreadable and non-regular file by absolute path, its ``report`` holds them as data.
            ManifestError: There is no such directory, or a listed name is refused.
        """
        refuse_empty(shards_dir=shards_dir)
        root = Path(real_root(shards_dir))
        files = [PromisedFile(name=shard.name) for shard in self.shards]
        check(
            Manifest(root=root, path=root / SHARDS_FILE, format="saev", files=files)
        ).raise_for_findings()


def _taken(shard: object) -> Shard:
    if type(shard) is not Shard:
        raise TypeError(f"shards: expected Shard, found {type(shard).__name__}")
    if type(shard.name) is not str:
        raise TypeError(f"name: expected str, found {type(shard.name).__name__}")
    n_examples = count("n_examples", shard.n_examples, 0, MAX_COUNT)
    return shard if n_examples is shard.n_examples else Shard(shard.name, n_examples)


def read_shards(root: str) -> list[Shard]:
    """Return the entries of ``shards.json``, with names that may yet be refused.

    Args:
        root: Real absolute path of the directory.

    Raises:
        ManifestNotFoundError: There is no such directory or file.
        ManifestError: It is not what the protocol describes.
    """
    path = os.path.join(root, SHARDS_FILE)
    return json.decode(read_bytes(root, SHARDS_FILE), list[Shard], path=path)

"""A dataset of the sequences in one shard of tokens, for all ranks."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shardproof._base.arguments import checked, rank_of
from shardproof._base.work import Closing
from shardproof.datasets.tokens._token_checks import OpenShard, ProofLevel, open_proven
from shardproof.datasets.tokens._token_files import AnyPath, TokenFiles, TokenShard


class SharedShardedDataset(Closing):
    """The sequences of one shard of tokens, read from disk one by one, by any number of ranks.

    Every rank reads the same files and sees every sequence: which rank trains on which is up to the
    sampler, as with any map-style dataset of torch. Nothing is mapped into memory. A file that is
    cut or lost while it is read is an error that names it, not the end of the process.

    Args:
        shard_index: Number of the shard.
        sequence_length: Tokens of a sequence.
        rank: This process's number, from 0 on.
        world_size: How many processes there are.
        shards_path: Directory of the shards; None for ``$DATASET_BINS_PATH``.
        token_dtype: Type of a token in the file; a file of another type is a finding.
        file_prefix: The tokens are in ``<file_prefix>_000003.npy``.
        ids_prefix: The ids are in ``<ids_prefix>_000003.npy``; None as for `TokenFiles`.
        level: ``"complete"``: sizes, types and counts are right. ``"valid"``: also each sequence's
            bytes are those that its id was made of; reads the whole file.
        allow_length_mismatch: As for `TokenFiles`.

    Raises:
        ShardValidationError: Also a `FileNotFoundError`; it lists everything that is wrong with the
            two files, by absolute path, and its notes say what was expected and found.
        ManifestError: There is no such directory.
        ShardReadError: A file changed or failed while it was opened.
        ValueError: A number out of range, a prefix that no file name may begin with, or no
            directory.
        TypeError: An argument of the wrong type.

    Example:
        >>> from shardproof.datasets import sequence_id
        >>> output_dir.mkdir()
        >>> tokens = np.arange(12, dtype=np.uint32)
        >>> ids = [sequence_id(sequence) for sequence in tokens.reshape(3, 4)]
        >>> np.save(output_dir / "train_000000.npy", tokens)
        >>> np.save(output_dir / "sample_ids_000000.npy", np.array(ids, np.uint64))
        >>> dataset = SharedShardedDataset(0, 4, shards_path=output_dir, level="valid")
        >>> len(dataset), dataset[1].tolist(), hex(dataset.sample_id(1))
        (3, [4, 5, 6, 7], '0x4bb6bccff39482bc')
    """

    @checked
    def __init__(
        self,
        shard_index: int,
        sequence_length: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        shards_path: AnyPath | None = None,
        token_dtype: npt.DTypeLike = np.uint32,
        file_prefix: str = "train",
        ids_prefix: str | None = None,
        level: ProofLevel = "complete",
        allow_length_mismatch: bool = False,
    ) -> None:
        self.rank, self.world_size = rank_of(rank, world_size)
        files = TokenFiles(
            sequence_length=sequence_length,
            shards_path=shards_path,
            token_dtype=token_dtype,
            file_prefix=file_prefix,
            ids_prefix=ids_prefix,
            allow_length_mismatch=allow_length_mismatch,
        )
        self._open: OpenShard = open_proven(TokenShard(files, shard_index), level)

    @classmethod
    @checked
    def load(
        cls,
        files: TokenFiles,
        shard_index: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        level: ProofLevel = "complete",
    ) -> Self:
        """Open a shard of the files that ``files`` describes; all else is as for the class."""
        dataset = cls.__new__(cls)
        dataset.rank, dataset.world_size = rank_of(rank, world_size)
        dataset._open = open_proven(TokenShard(files, shard_index), level)
        return dataset

    @staticmethod
    @checked
    def locate_shards(
        shard_index: int,
        custom_path: AnyPath | None = None,
        file_prefix: str = "train",
        ids_prefix: str | None = None,
    ) -> tuple[Path, Path]:
        """Return the absolute paths of a shard's tokens and ids, which need not be there.

        Arguments are those of the class, of which ``custom_path`` is ``shards_path``.
        """
        return TokenFiles(
            sequence_length=1,
            shards_path=custom_path,
            file_prefix=file_prefix,
            ids_prefix=ids_prefix,
        ).paths(shard_index)

    @property
    def files(self) -> TokenFiles:
        """Which files the shards are, and what they must hold."""
        return self._open.shard.files

    @property
    def tokens_file(self) -> Path:
        """Absolute path of the tokens."""
        return self._open.shard.paths[0]

    @property
    def ids_file(self) -> Path:
        """Absolute path of the ids."""
        return self._open.shard.paths[1]

    @property
    def sequence_length(self) -> int:
        """Tokens of a sequence."""
        return self._open.shard.files.sequence_length

    def __len__(self) -> int:
        return self._open.n_sequences

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        """Return one sequence.

        Raises:
            IndexError: There is none of that number; numbers begin at 0.
            ShardReadError: It can't be read whole.
        """
        first = self._checked(index) * self.sequence_length
        return self._open.tokens.read(first, self.sequence_length)

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self[index] for index in range(len(self)))

    def read(self, indices: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return several sequences, one a row, in the given order; errors as for one."""
        rows = [self._checked(index) for index in indices]
        batch = np.empty((len(rows), self.sequence_length), self.files.dtype)
        for place, row in enumerate(rows):
            self._open.tokens.fill(batch[place], row * self.sequence_length)
        return batch

    def sample_id(self, index: int) -> int:
        """Return the id of one sequence, as it is stored; errors as for the sequence."""
        return int(self._open.ids.read(self._checked(index), 1)[0])

    def _checked(self, index: Any) -> int:
        if isinstance(index, bool | np.bool_):  # which are integers to Python
            raise TypeError("index: expected an integer, found a bool")
        number = operator.index(index)
        if not 0 <= number < len(self):
            raise IndexError(f"expected 0 to {len(self) - 1}, found {number}")
        return number

    def close(self) -> None:
        """Close both files; nothing is read any more, but by threads that are at it already."""
        self._open.close()

    def __reduce__(self) -> tuple[Callable[..., "SharedShardedDataset"], tuple[Any, ...]]:
        # For workers that inherit no descriptors: they look, and open anew.
        shard = self._open.shard
        load = functools.partial(type(self).load, rank=self.rank, world_size=self.world_size)
        return load, (shard.files, shard.index)

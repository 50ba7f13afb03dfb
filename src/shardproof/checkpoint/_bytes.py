"""Turn one shard into bytes and back, to send it elsewhere than to a file."""

import os
from collections.abc import Mapping
from typing import Any

from shardproof._base import digest, files
from shardproof._base.arguments import checked, count
from shardproof._base.messages import told
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import RankRecord, ShardEntry, ShardHeader
from shardproof.checkpoint.read._shard_reader import Framework, read_tensors
from shardproof.checkpoint.save._commit import Algorithm
from shardproof.checkpoint.save._shard_writer import ShardWriter, tensors_of
from shardproof.checkpoint.storage._reading import refuse_other_file
from shardproof.errors import CheckpointError

_PATH = "<bytes>"
_MOST_OF_HEADER = 2**10


class MultiShardCheckpointFormat:
    """Turn one shard into bytes and back, each byte proven before it is given away.

    The bytes are those of the file that `MultiShardSaver` writes, and behind them the shard's entry
    of the metadata, which has the tensors' names, types and shapes: as the record of a rank has it.

    Args:
        algorithm: By which the data can be proven, as for `MultiShardSaver`.
        framework: Of what `deserialize` returns, as for `MultiShardLoader`.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: Another algorithm or framework, or an algorithm whose package is not installed.

    Example:
        >>> import numpy as np
        >>> from shardproof import MultiShardCheckpointFormat
        >>> shards = MultiShardCheckpointFormat()
        >>> data = shards.serialize({"bias": np.arange(3)}, rank=1)
        >>> shards.deserialize(data)["bias"]
        array([0, 1, 2])
    """

    @checked
    def __init__(self, *, algorithm: Algorithm = "sha256", framework: Framework = "numpy") -> None:
        digest.begin(algorithm, 0)
        self._algorithm, self._framework = algorithm, framework

    @checked
    def serialize(self, arrays: Mapping[str, Any], *, rank: int = 0) -> bytes:
        """Return the bytes of a shard; they need as much memory again as the arrays.

        Args:
            arrays: Arrays of numpy or tensors of torch, by name, as for `MultiShardSaver`.
            rank: Of the process that they are of.

        Raises:
            TypeError: An argument of the wrong type, or a tensor whose type the format lacks.
            ValueError: A rank below 0, a tensor's name that is empty or over 4096 characters.
        """
        count("rank", rank, 0, _format.MAX_RANK)
        tensors = tensors_of(arrays)
        with open(files.nameless(), "w+b", buffering=0) as file:
            name = _format.shard_name("bytes", rank)
            entry = ShardWriter(file.fileno(), _PATH, self._algorithm).write(rank, name, tensors)
            record = RankRecord(step=None, shard=entry, checksum="")
            os.pwrite(file.fileno(), _format.seal(record), entry.file_size)
            file.seek(0)
            return file.read()

    @checked
    def deserialize(
        self, data: bytes | bytearray | memoryview, *, entry: ShardEntry | None = None
    ) -> dict[str, Any]:
        """Return the arrays of a shard, by name, in memory of their own.

        Args:
            data: What `serialize` returned; or with ``entry``, what a shard's file holds.
            entry: The shard's of the metadata: ``load_metadata(prefix).shards[rank]``.

        Raises:
            CheckpointError: They are not the bytes that were written.
            TypeError: An argument of the wrong type.
        """
        view = memoryview(data).cast("B")
        if entry is None:
            try:
                header = ShardHeader.parse(bytes(view[:_MOST_OF_HEADER]))
            except ValueError as error:
                raise CheckpointError(f"it is no shard: {told(error)}", path=_PATH) from None
            end = _format.header_size(header.checksum) + header.data_length
            if header.data_length < 0 or not end < len(view):
                problem = (
                    f"expected {header.data_length} bytes of data and an entry of metadata behind "
                    f"them, found {len(view)} bytes in all; of a shard without one, give entry="
                )
                raise CheckpointError(problem, path=_PATH)
            record = _format.unseal(bytes(view[end:]), RankRecord, path=_PATH)
            entry, view = record.shard, view[:end]
        _format.refuse_broken(entry, path=_PATH)
        file = _Memory(view)
        refuse_other_file(file, entry)
        return read_tensors(file, entry, entry.tensors, framework=self._framework)


class _Memory:
    """Bytes that are read as a file is."""

    path = _PATH

    def __init__(self, view: memoryview) -> None:
        self._view, self.size = view, len(view)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        found = self._view[offset : offset + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._view.release()

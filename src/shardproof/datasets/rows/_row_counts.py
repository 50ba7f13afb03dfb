"""How many rows files have, written down: a job that is resumed need not ask the source again."""

import logging
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Annotated

import msgspec

from shardproof._base import files as _files
from shardproof._base import json
from shardproof._base.fanout import over_threads
from shardproof._base.messages import shown, told
from shardproof._base.opening import real_path
from shardproof.datasets.rows._footers import row_count
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Limits

__all__ = ["CountsFile", "row_counts"]

logger = logging.getLogger("shardproof.fetching")

_THREADS = 8  # as many as a browser has to one host


class _Counts(msgspec.Struct):
    """What the file holds: the number of rows by digest or identity."""

    row_counts: dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class CountsFile:
    """A file that says how many rows there are in files of a certain content.

    What it can't say or keep costs a question to the source, and nothing else.

    Args:
        path: Absolute path; None to keep nothing.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: Mapping[str, int] = {} if path is None else _read(path)
        self._new: dict[str, int] = {}

    def get(self, file: RemoteFile) -> int | None:
        """Return how many rows a file has, if that is known."""
        return self._known.get(file.digest or file.identity or "")

    def put(self, file: RemoteFile, n_rows: int) -> None:
        """Remember how many it has."""
        content = file.digest or file.identity
        if content and content not in self._known:
            self._new[content] = n_rows

    def save(self) -> None:
        """Write down what is new."""
        if not self._new or self._path is None:
            return
        data = msgspec.json.encode(_Counts({**_read(self._path), **self._new}))
        try:
            _files.make_directories(os.path.dirname(self._path))
            _files.write_whole(self._path, data)
        except OSError as error:
            logger.warning("Could not keep row counts in '%s': %s", shown(self._path), told(error))


def _read(path: str) -> dict[str, int]:
    try:
        directory, name = os.path.split(real_path(path))
        return json.read(directory, name, _Counts).row_counts
    except ManifestNotFoundError:
        return {}
    except ManifestError as error:
        logger.warning("%s; the source is asked instead", told(error))
        return {}
    except OSError as error:
        logger.warning("Could not read '%s': %s", shown(path), told(error))
        return {}


def row_counts(
    source: Source, files: Sequence[RemoteFile], counts: CountsFile, limits: Limits
) -> Generator[int, None, None]:
    """Yield how many rows each file has, some of which are asked for at once; in order.

    Args:
        source: Where they are.
        files: All of them.
        counts: What is known, and where it is kept.
        limits: How long and how often to try.

    Raises:
        ShardReadError: One of them is no parquet file, or contradicts itself.
        FetchError: The source doesn't give its end.
    """

    def ask(some: Sequence[RemoteFile]) -> list[tuple[RemoteFile, int]]:
        return [(file, _asked(source, file, counts, limits)) for file in some]

    asked = over_threads(ask, files, _THREADS, chunk=1)
    try:
        for _, found in asked:
            for file, n_rows in found:
                counts.put(file, n_rows)
                yield n_rows
    finally:
        asked.close()
        counts.save()


def _asked(source: Source, file: RemoteFile, counts: CountsFile, limits: Limits) -> int:
    known = counts.get(file)
    return row_count(source, file, limits) if known is None else known

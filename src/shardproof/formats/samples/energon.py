"""Megatron Energon: tar archives that ``energon prepare`` counted and indexed.

``.nv-meta/.info.json``, of old ``.info.yaml``, has the number of samples of each archive. Beside
an archive lies its index, with a number of 8 bytes for each sample, where it begins, and one more,
where the last one ends.
"""

import contextlib
import functools
import os
import struct
from collections.abc import Iterator, Mapping

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted, told
from shardproof._base.names import opened
from shardproof._base.opening import Read, files_below, is_there, matching
from shardproof._base.yaml import MAX_YAML_BYTES, NotYamlError, YamlReader
from shardproof.errors import ManifestError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest, Mismatch
from shardproof.probes import tar

_FOLDER = ".nv-meta"
_JSON = f"{_FOLDER}/.info.json"
_YAML = f"{_FOLDER}/.info.yaml"
_DATABASE = f"{_FOLDER}/index.sqlite"
_STAMP = f"{_FOLDER}/index.uuid"  # written when the database was
_PLAIN = ".tar"
_INDEX = ".tar.idx"
_OFFSET_BYTES = 8

_MAX_CONFIG_BYTES = 2**20
_OWED = {f"{_FOLDER}/dataset.yaml": b"__class__", f"{_FOLDER}/split.yaml": b"split_parts"}
"""What a reader needs besides; files of other names may have it, if it is told these."""

_DATABASE_MAGIC = b"SQLite format 3\0"
_DATABASE_HEADER = struct.Struct(">16xH6xII60xI4x")


class _EnergonInfo(msgspec.Struct, omit_defaults=True):
    shard_counts: dict[str, Count]
    energon_version: str | None = None


def recognizes(path: str) -> bool:
    is_counted = any(is_there(os.path.join(path, name)) for name in (_JSON, _YAML))
    return is_counted or (is_there(os.path.join(path, _FOLDER)) and bool(matching(path, "*.tar")))


def read_manifest(path: str) -> Manifest:
    if not is_there(os.path.join(path, _JSON)) and is_there(os.path.join(path, _YAML)):
        info, counts = _YAML, _old_counts(path)
    else:
        info, counts = _JSON, json.read(path, _JSON, _EnergonInfo, usual=_EnergonInfo).shard_counts
    files = list(_promises(counts))
    if not files:
        problem = "expected the counts of one shard or more, found none"
        raise ManifestError(problem, path=os.path.join(path, info))
    if is_there(os.path.join(path, _STAMP)):
        files.append(ExpectedFile(name=_DATABASE))
    return Manifest.at(
        path,
        info,
        "energon",
        files,
        probe=functools.partial(_probe, path),
        prove=_prove,
        contradictions=functools.partial(_unfinished, path),
    )


def _old_counts(path: str) -> dict[str, int]:
    text = json.read_bytes(path, _YAML, max_bytes=MAX_YAML_BYTES).decode(errors="replace")
    try:
        counts = YamlReader("it", as_written=True).field(text, "shard_counts", {})
        return msgspec.convert(counts, dict[str, Count], strict=False)
    except (NotYamlError, ImportError, msgspec.ValidationError) as error:
        tip = "`energon prepare --tar-index-only` writes it as JSON"
        raise ManifestError(f"{told(error)}; {tip}", path=os.path.join(path, _YAML)) from None


def _unfinished(path: str) -> Iterator[Contradiction]:
    """Yield what `energon prepare` writes last, and no file has."""
    folder, texts = os.path.join(path, _FOLDER), []
    for name in files_below(folder):
        with contextlib.suppress(ManifestError):  # a database, or one that may not be read
            texts.append(json.read_bytes(folder, name, max_bytes=_MAX_CONFIG_BYTES))
    for name, word in _OWED.items():
        if not any(word in text for text in texts):
            expected = (
                f"a file in {_FOLDER} with {quoted(word.decode())}, as Energon's reader needs"
            )
            found = "none: `energon prepare` was interrupted, or left it out; run it again"
            yield Contradiction(name, expected, found)


def _promises(counts: Mapping[str, int]) -> Iterator[ExpectedFile]:
    """Yield what is promised of each archive, and of its index, where that is read."""
    for name, n_samples in counts.items():
        if n_samples and name.endswith(_PLAIN):
            n_bytes = (n_samples + 1) * _OFFSET_BYTES
            yield ExpectedFile(name=f"{name}.idx", size=n_bytes, n_items=n_samples)
        yield ExpectedFile(name=name, n_items=n_samples)


def _probe(root: str, promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with an archive, with its index, or with both together."""
    if promised.name == _DATABASE:
        return _cut_database(read, size)
    if promised.name.endswith(_INDEX):
        other = Mismatch("the first and last byte of a sample at the end", "other numbers")
        return None if _last_sample(read, size) else other
    if (wrong := tar.probe(promised, read, size)) or not promised.name.endswith(_PLAIN):
        return wrong
    with opened(f"{promised.name}.idx", root) as index:
        n_bytes = ((promised.n_items or 0) + 1) * _OFFSET_BYTES
        last = None if index is None else _last_sample(index, n_bytes)
    if last is None:
        return None
    first, behind = (read(tar.BLOCK_BYTES, at) for at in last)
    if tar.is_header(first) and not behind.strip(b"\0"):
        return None
    expected = f"a last sample from byte {last[0]} to byte {last[1]}, as the index says"
    return Mismatch(expected, "none there")


def _last_sample(read: Read, size: int) -> tuple[int, int] | None:
    data = read(2 * _OFFSET_BYTES, max(0, size - 2 * _OFFSET_BYTES))
    if len(data) < 2 * _OFFSET_BYTES or size % _OFFSET_BYTES:
        return None
    start, end = struct.unpack("<QQ", data)
    is_sample = start < end < 2**63 and not (start | end) % tar.BLOCK_BYTES
    return (start, end) if is_sample else None


def _cut_database(read: Read, size: int) -> Mismatch | None:
    """Return how a database of SQLite is no whole one; its file format, sections 1.3.2, 1.3.7."""
    head = read(_DATABASE_HEADER.size)
    if len(head) < _DATABASE_HEADER.size or not head.startswith(_DATABASE_MAGIC):
        return Mismatch("a database of SQLite", quoted(head[:16]))
    page_bytes, change, n_pages, vouched = _DATABASE_HEADER.unpack(head)
    n_bytes = n_pages * (2**16 if page_bytes == 1 else page_bytes)
    if change != vouched or size >= n_bytes:
        return None
    return Mismatch(f"{n_bytes} bytes for {n_pages} pages", f"{size} bytes")


def _prove(promised: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    is_archive = not promised.name.endswith(_INDEX) and promised.name != _DATABASE
    return is_archive and tar.prove(promised, read, size)

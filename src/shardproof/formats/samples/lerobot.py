"""Episodes of robots as LeRobot keeps them: parquet and videos, which ``meta/info.json`` describes.

Version 2 has a file for each episode, and so says which there are. Version 3 has many episodes in a
file, and says how many rows there are in all.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shardproof._base import json
from shardproof._base.opening import Read, files_below, is_directory
from shardproof.errors import ManifestError, ManifestPermissionError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest, Mismatch
from shardproof.probes import json_lines, parquet

_INFO, _FIRST_FIELD = "meta/info.json", b'"codebase_version"'
_FIELD = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")
_MOST_FILES = 1_000_000
_MOST_BOXES = 4096
_ALWAYS = {
    True: ("meta/episodes.jsonl", "meta/tasks.jsonl"),
    False: ("meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"),
}
"""What each data set has that has episodes, by whether each has a file of its own."""


class _Feature(msgspec.Struct):
    dtype: str


class _RobotInfo(msgspec.Struct):
    total_episodes: Count
    total_frames: Count
    data_path: str
    features: dict[str, _Feature]
    chunks_size: Count = 1000
    video_path: str | None = None


def recognizes(path: str) -> bool:
    try:
        text = json.read_bytes(path, _INFO, max_bytes=json.MAX_BYTES)
    except ManifestPermissionError:
        raise
    except ManifestError:  # it is another's
        return False
    return _FIRST_FIELD in text or not text.strip(b"\0 \n")  # it may be torn


def read_manifest(path: str) -> Manifest:
    info = json.read(path, _INFO, _RobotInfo)
    is_each = "{episode_index" in info.data_path
    names = {name for name in files_below(path) if name.endswith(tuple(_LAWS))}
    names.update(_ALWAYS[is_each] if info.total_episodes else ())
    names.update(_of_episodes(path, info) if is_each else ())
    data = sorted(name for name in names if name.startswith("data/"))
    return Manifest.at(
        path,
        _INFO,
        "lerobot",
        [ExpectedFile(name=name) for name in sorted(names)],
        probe=_probe,
        contradictions=functools.partial(_other_count, path, info.total_frames, data),
    )


def _of_episodes(path: str, info: _RobotInfo) -> Iterator[str]:
    """Yield the files of each episode; of videos none, if nobody fetched any."""
    patterns = [info.data_path]
    if info.video_path and is_directory(os.path.join(path, "videos")):
        keys = (key for key, feature in info.features.items() if feature.dtype == "video")
        patterns += [info.video_path.replace("{video_key}", key) for key in keys]
    if info.total_episodes * max(len(patterns), sum(map(len, patterns)) // 128) > _MOST_FILES:
        raise ManifestError(f"it states more than {_MOST_FILES} files", path=f"{path}/{_INFO}")
    for index in range(info.total_episodes):
        numbers = {"episode_index": index, "episode_chunk": index // (info.chunks_size or 1)}
        fill = functools.partial(_filled, numbers)
        yield from (_FIELD.sub(fill, pattern) for pattern in patterns)


def _filled(fields: Mapping[str, int], found: re.Match[str]) -> str:
    return str(fields.get(found[1], found[0])).zfill(int(found[2] or 0))


def _probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    law = _LAWS.get(os.path.splitext(promised.name)[1])
    return law(promised, read, size) if law else None


def _wrong_boxes(_: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return where the boxes of a video do not follow one another up to the end."""
    # Each begins with its size, as a u32 or, after a 1, as a u64 (ISO 14496-12, section 4.2).
    at, kinds = 0, list[bytes]()
    while at < size and len(kinds) < _MOST_BOXES:
        head = read(16, at)
        n_bytes = int.from_bytes(head[:4], "big")
        n_bytes = int.from_bytes(head[8:], "big") if n_bytes == 1 else n_bytes or size - at
        kinds.append(head[4:8])
        if n_bytes < 8 or at + n_bytes > size or kinds[0] != b"ftyp":
            return Mismatch(f"a box of MP4 at byte {at}, within {size} bytes", f"{n_bytes} bytes")
        at += n_bytes
    return None if b"moov" in kinds or at < size else Mismatch("an index of the video", "none")


_LAWS = {".parquet": parquet.probe, ".jsonl": json_lines.probe, ".mp4": _wrong_boxes}


def _other_count(path: str, n_rows: int, names: Sequence[str]) -> Iterator[Contradiction]:
    found = parquet.rows_in(path, names)
    if found not in {None, n_rows}:
        yield Contradiction(_INFO, f"{n_rows} rows in 'data', as it says", f"{found} rows")

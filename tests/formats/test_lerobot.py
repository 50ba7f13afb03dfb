"""LeRobot's data sets, of which version 2 says which files there are, and 3 how many rows."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardproof import ManifestError, formats, validate
from tests.formats.looking import found_in, of_golden, said_of

INFO = "meta/info.json"
VIDEO = "videos/chunk-000/observation.images.top/episode_000001.mp4"


@pytest.fixture(params=["lerobot", "lerobot-2"])
def root(request, tmp_path: Path) -> Path:
    return of_golden(request.param, tmp_path)


def change(root: Path, **fields: Any) -> None:
    info = json.loads((root / INFO).read_text())
    (root / INFO).write_text(json.dumps(info | fields))


def test_what_lies_beside_is_no_matter(root: Path) -> None:
    for name in (
        "README.md",
        ".gitattributes",
        "images/top/0.png",
        ".cache/x",
        "meta/modality.json",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    assert found_in(root, "valid") == []
    assert [*formats.find(root)] == [str(root)]


def test_its_data_alone_are_parquet(root: Path) -> None:
    assert formats.detect(str(root / "data")).name == "parquet"
    assert found_in(root / "data", "valid") == []


def test_each_file_is_looked_at(root: Path) -> None:
    for path in [path for path in root.rglob("*.*") if path.suffix in {".parquet", ".mp4"}]:
        whole = path.read_bytes()
        for cut in (1, 100, len(whole) - 9):
            os.truncate(path, len(whole) - cut)
            assert found_in(root) == [("structure", path.name)]
            path.write_bytes(whole)


def test_files_of_episodes_that_are_missing(tmp_path: Path) -> None:
    root = of_golden("lerobot-2", tmp_path)
    for name in ("data/chunk-000/episode_000000.parquet", VIDEO):
        (root / name).unlink()
    names = ["episode_000000.parquet", "episode_000001.mp4"]
    assert found_in(root, "present") == [("missing", name) for name in names]
    change(root, total_episodes=1002)
    missing = {each.path.relative_to(root).as_posix() for each in validate(root).findings}
    assert "data/chunk-001/episode_001001.parquet" in missing


def test_videos_that_nobody_fetched_are_not_expected(tmp_path: Path) -> None:
    root = of_golden("lerobot-2", tmp_path)
    (root / "videos").rename(tmp_path / "elsewhere")
    assert found_in(root, "valid") == []


def test_rows_that_are_missing(tmp_path: Path) -> None:
    root = of_golden("lerobot", tmp_path)
    [path] = root.glob("data/*/*.parquet")
    pq.write_table(pq.read_table(path).slice(0, 5), path)
    assert said_of(root) == [("8 rows in 'data', as it says", "5 rows")]
    path.unlink()
    assert found_in(root) == [("structure", "info.json")]


def test_a_data_set_without_episodes(tmp_path: Path) -> None:
    root = of_golden("lerobot-2", tmp_path)
    for path in [path for path in root.rglob("*.*") if path.is_file() and path.name != "info.json"]:
        path.unlink()
    change(root, total_episodes=0, total_frames=0)
    assert validate(root, level="valid").n_files == 0


def test_a_video_whose_index_was_never_written(tmp_path: Path) -> None:
    root = of_golden("lerobot-2", tmp_path)
    data = (root / VIDEO).read_bytes()
    (root / VIDEO).write_bytes(data[: int.from_bytes(data[:4], "big")])
    assert said_of(root) == [("an index of the video", "none")]


@pytest.mark.parametrize(
    "harm",
    [
        lambda root: change(root, total_episodes=2**50),
        lambda root: change(root, total_episodes=-1),
        # names of 4 KiB each, of a description of less than 5 KiB, would take 4 GB
        lambda root: change(root, total_episodes=10**6, data_path="{episode_index}" + "a" * 4000),
        lambda root: change(root, data_path="../{episode_index:06d}.parquet"),
        lambda root: change(root, data_path="/etc/{episode_index}"),
        lambda root: os.truncate(root / INFO, 300),
        lambda root: os.truncate(root / INFO, 0),
    ],
)
def test_a_description_that_lies_is_refused(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    root = of_golden("lerobot-2", tmp_path)
    harm(root)
    try:
        assert not validate(root).ok
    except ManifestError as error:
        assert INFO in str(error)  # noqa: PT017


def test_a_path_is_filled_in_and_never_evaluated(tmp_path: Path) -> None:
    root = of_golden("lerobot-2", tmp_path)
    change(root, data_path="data/{episode_index.__class__}{episode_index:999999999d}.parquet")
    names = {each.path.name for each in validate(root).findings}
    assert all("{episode_index" in name for name in names)

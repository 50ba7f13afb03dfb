"""What is staged, and to where."""

from pathlib import Path

import pytest


@pytest.fixture
def to(tmp_path) -> Path:
    path = tmp_path / "local"
    path.mkdir()
    return path


@pytest.fixture
def shards_dir(make_shards_dir) -> Path:
    return make_shards_dir(3)

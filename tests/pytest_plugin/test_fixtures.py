"""Layouts, the writer, and the fixtures and the context manager over both."""

import base64
import hashlib
import json
import os
import pickle
import select
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import example, given

from shardproof import Metadata, ShardInfo
from shardproof.testing import (
    Layout,
    ShardState,
    shards_dir,
    without_root_override,
    write_layout,
)
from shardproof.testing.samples import saev
from shardproof.testing.samples._directories import writer
from shardproof.testing.samples._layout import FORMATS
from shardproof.testing.strategies import layouts
from tests.helpers.descriptors import needs_proc
from tests.helpers.drawing import examples

# Warnings are errors, but for the one about a run inside a run with --assert=plain.
WARNINGS = ("-Werror", "-Wignore::pytest.PytestAssertRewriteWarning")


class TestLayout:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Layout(), "Layout(n_shards=3)"),
            (
                Layout(n_shards=5, missing=[1, 0], empty=[2], unreadable=(3,), directory={4}),
                "Layout(n_shards=5, missing=[0, 1], empty=[2], unreadable=[3], directory=[4])",
            ),
            (Layout(2, n_examples=7), "Layout(n_shards=2)"),
            (Layout(np.int64(2), layers=np.array([2, 5])), "Layout(n_shards=2, layers=(2, 5))"),
        ],
    )
    def test_defaults_are_left_out(self, value: Layout, text: str) -> None:
        assert repr(value) == text

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"n_shards": -1}, ValueError, "n_shards: expected 0 or more, found -1"),
            ({"d_model": 0}, ValueError, "d_model: expected 1 or more, found 0"),
            ({"d_model": np.bool_(True)}, TypeError, "d_model: expected int"),
            ({"labels": 1}, TypeError, "labels: expected bool, found 1"),
            ({"n_shards": 0, "labels": True}, ValueError, "labels: expected examples to label"),
            ({"layers": ()}, ValueError, "layers: expected one or more, none twice"),
            ({"layers": (1, 1)}, ValueError, "layers: expected one or more, none twice"),
            ({"n_examples": 7}, ValueError, r"n_examples: .* found n_shards=3"),
            ({"n_examples": 13}, ValueError, r"n_examples: .* found n_shards=3"),
        ],
    )
    def test_wrong_arguments(self, arguments, error, text) -> None:
        with pytest.raises(error, match=text):
            Layout(**arguments)

    def test_the_last_shard_may_be_full_or_empty_and_has_room_by_default(self) -> None:
        assert [Layout(3, n_examples=n).n_examples for n in (8, 9, 12)] == [8, 9, 12]
        for n_shards, room, n_examples in [(0, 4, 0), (1, 4, 3), (1, 1, 1), (3, 1, 3), (2, 2, 3)]:
            value = Layout(n_shards, examples_per_shard=room)
            assert value.n_examples == n_examples
            assert sum(map(value.examples_in, range(n_shards))) == n_examples


class TestWriteLayout:
    def test_what_saev_and_orjson_write(self, tmp_path: Path) -> None:
        value = Layout(2, layers=(1, 5), cls_token=False)
        path = write_layout(value, tmp_path)
        metadata = json.loads((path / "metadata.json").read_text())
        # saev sorts the keys of dicts, and its metadata are none: the order of fields decides.
        fields = {
            "family": "clip",
            "ckpt": "ViT-B-32/openai",
            "layers": [1, 5],
            "content_tokens_per_example": 3,
            "cls_token": False,
            "d_model": 8,
            "n_examples": 7,
            "max_tokens_per_shard": 24,
            "data": metadata["data"],
            "dataset": "/data/images",
            "pixel_agg": "majority",
            "dtype": "float32",
            "protocol": "2.1",
        }
        assert [*metadata.items()] == [*fields.items()]
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(base64.b64decode(metadata["data"], validate=True))
        name = hashlib.sha256(orjson.dumps(metadata)).hexdigest()[:8]
        assert value.folder == f"saev/shards/{name}"
        for name in ("metadata.json", "shards.json"):
            text = (path / name).read_bytes()
            assert text == orjson.dumps(json.loads(text), option=orjson.OPT_INDENT_2)

    @examples(30)
    @given(layouts(states=["missing"]))
    @example(Layout(1, n_examples=0))
    def test_shards_as_arrays(self, value: Layout) -> None:
        with shards_dir(value) as path:
            metadata = Metadata.load(path)
            assert metadata.shard_shape == value.shard_shape
            n_values = metadata.n_examples * int(np.prod(value.shard_shape[1:]))
            rows = np.arange(1, n_values + 1, dtype="<f4").reshape(-1, *value.shard_shape[1:])
            for index, shard in enumerate(ShardInfo.load(path)):
                if value.states[index] is not ShardState.OK:
                    continue
                array = np.memmap(path / shard.name, "<f4", "r", shape=value.shard_shape)
                assert os.path.getsize(path / shard.name) == metadata.shard_bytes
                first = index * metadata.examples_per_shard
                expected = rows[first : first + shard.n_examples]
                np.testing.assert_array_equal(array[: shard.n_examples], expected)
                assert not array[shard.n_examples :].any()

    def test_labels_and_numbers_begin_anew_where_their_types_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        some = Layout(2, labels=True, content_tokens_per_example=50)
        path = write_layout(some, tmp_path / "some")
        labels = np.fromfile(path / "labels.bin", np.uint8)
        np.testing.assert_array_equal(labels, np.arange(7 * 50) % 256)
        assert np.float32(saev._PERIOD) + np.float32(1) == saev._PERIOD
        monkeypatch.setattr(saev, "_PERIOD", 10)
        path = write_layout(Layout(1, d_model=1, n_examples=4), tmp_path / "others")
        numbers = np.fromfile(path / "acts000000.bin", "<f4")
        np.testing.assert_array_equal(numbers[:12], [*range(1, 11), 1, 2])
        assert "labels.bin" not in os.listdir(path)


class TestShardsDir:
    def test_it_is_gone_at_the_end(self) -> None:
        with without_root_override():
            with shards_dir(Layout(unreadable=[0], directory=[1])) as path:
                base = path.parents[2]
                for locked in (path / "acts000001.bin", path, path.parent):
                    locked.chmod(0)
            assert not base.exists()

    @pytest.mark.parametrize("form", FORMATS)
    def test_a_link_in_the_place_of_its_folder_is_not_followed_and_pipes_get_a_writer(
        self, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch(mode=0o400)
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        poll = select.poll()
        with shards_dir(Layout(format=form)):
            (folder,) = (tmp_path / "temporary").glob("*/*")
            folder.rename(folder.with_name("aside"))
            folder.symlink_to(tmp_path)
            os.mkfifo(folder.with_name("pipe"))
            reader = os.open(folder.with_name("pipe"), os.O_RDONLY | os.O_NONBLOCK)
            poll.register(reader)
            assert poll.poll(0) == []
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o400
        assert poll.poll(0) == [(reader, select.POLLHUP)]  # a writer came, and went
        os.close(reader)


class TestRestoreModes:
    def test_a_link_that_was_given_is_where_it_leads(self, tmp_path: Path) -> None:
        link, inside = tmp_path / "link", tmp_path / "inside"
        inside.mkdir()
        link.symlink_to(inside)
        with writer(lambda: tmp_path) as write:
            path = write(Layout(1, format="checkpoint", unreadable=[0]), link)
        assert path.parent == link
        assert stat.S_IMODE((inside / "model_shard_0.shard").stat().st_mode) == 0o600


class TestShardsDirFactory:
    @needs_proc
    def test_it_lasts_for_the_session(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("""
            import pytest
            from pathlib import Path
            from shardproof.testing import MakeShardsDir, without_root_override

            def capabilities():
                return Path("/proc/thread-self/status").read_text().split("CapEff:")[1].split()[0]

            @pytest.fixture(scope="session")
            def unreadable(shards_dir_factory: MakeShardsDir):
                before = capabilities()
                path = shards_dir_factory(2, unreadable_shards=[0])
                assert capabilities() == before
                assert path != shards_dir_factory(2, unreadable_shards=[0])
                return path / "acts000000.bin"

            @pytest.mark.parametrize("turn", [1, 2])
            def test_twice(unreadable, turn):
                assert unreadable.stat().st_mode & 0o777 == 0
                with without_root_override(), pytest.raises(PermissionError):
                    unreadable.read_bytes()
        """)
        pytester.runpytest_inprocess(*WARNINGS, "--basetemp=base").assert_outcomes(passed=2)
        made = (pytester.path / "base").glob("*/saev/shards/*/acts000000.bin")
        assert [path.stat().st_mode & 0o777 for path in {path.resolve() for path in made}] == [
            0o600,
            0o600,
        ]


def test_the_builders_import_neither_numpy_nor_pytest_nor_the_rest_of_shardproof() -> None:
    code = "import shardproof.testing, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"numpy", "pytest", "hypothesis", "pyfakefs", "beartype", "msgspec"}
    ours = {name for name in loaded if name.startswith("shardproof.")}
    assert {name.split(".")[1] for name in ours} == {"_base", "testing"}

"""saev's directories: the specification's eight cases, the metadata's arithmetic, hostile files."""

import dataclasses
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import (
    ManifestError,
    ManifestNotFoundError,
    Metadata,
    Shard,
    ShardInfo,
    ShardValidationError,
    validate,
)
from shardproof._base import liveness
from shardproof.saev import _metadata, _shard_info

FIELDS = {
    "family": "clip",
    "ckpt": "hf-hub:org/ViT-B-32",
    "layers": (6, 11),
    "content_tokens_per_example": 49,
    "cls_token": True,
    "d_model": 768,
    "n_examples": 10,
    "max_tokens_per_shard": 400,
    "data": "gASVAAAA",
    "dataset": "/data/imgs",
}


def test_names_are_those_of_saev() -> None:
    """They are made of halves; a name has more digits where six are too few."""
    assert _shard_info._names(0) == []
    for n_shards in (1, 999, 1000, 1001, 1_000_002):
        names = _shard_info._names(n_shards)
        assert names == [f"acts{index:06}.bin" for index in range(n_shards)]


class TestValidate:
    """The eight cases, by the exact text."""

    @pytest.fixture
    def error(self, make_shards_dir):
        def error(**damage) -> tuple[Path, str]:
            shards_dir = make_shards_dir(6, **damage)
            with pytest.raises(FileNotFoundError) as caught:
                ShardInfo.load(shards_dir).validate(shards_dir)
            assert isinstance(caught.value, ShardValidationError)
            return shards_dir, str(caught.value)

        return error

    def test_all_present(self, make_shards_dir) -> None:
        shards_dir = make_shards_dir(3)
        assert ShardInfo.load(shards_dir).validate(shards_dir) is None
        assert ShardInfo([]).validate(shards_dir) is None

    @pytest.mark.parametrize(
        ("damage", "title", "names"),
        [
            ({"missing_shards": [1, 3]}, "Missing files (2)", ["acts000001.bin", "acts000003.bin"]),
            ({"empty_shards": [2]}, "Empty files (1)", ["acts000002.bin"]),
            ({"unreadable_shards": [0]}, "Unreadable files (1)", ["acts000000.bin"]),
            ({"directory_shards": [5]}, "Not regular files (1)", ["acts000005.bin"]),
        ],
    )
    def test_one_problem(self, error, damage: dict, title: str, names: list[str]) -> None:
        shards_dir, text = error(**damage)
        files = "".join(f"\n  - {shards_dir}/{name}" for name in names)
        assert text == f"Shard validation failed in '{shards_dir}':\n\n{title}:{files}"

    def test_several_problems(self, error) -> None:
        shards_dir, text = error(
            missing_shards=[3, 0], empty_shards=[1], unreadable_shards=[2], directory_shards=[4]
        )
        shard = f"  - {shards_dir}/acts00000"
        assert text == (
            f"Shard validation failed in '{shards_dir}':\n\n"
            f"Missing files (2):\n{shard}0.bin\n{shard}3.bin\n\n"
            f"Empty files (1):\n{shard}1.bin\n\n"
            f"Unreadable files (1):\n{shard}2.bin\n\n"
            f"Not regular files (1):\n{shard}4.bin"
        )

    def test_a_path_as_text_and_relative(self, make_shards_dir, monkeypatch) -> None:
        shards_dir = make_shards_dir(2, missing_shards=[1])
        monkeypatch.chdir(shards_dir.parent)
        for path in (str(shards_dir), shards_dir.name):
            with pytest.raises(FileNotFoundError, match=f"  - {shards_dir}/acts000001.bin"):
                ShardInfo.load(path).validate(path)

    def test_a_name_that_leads_out(self, tmp_path) -> None:
        (tmp_path / "x").write_bytes(b"x")
        (tmp_path / "root").mkdir()
        with pytest.raises(ManifestError, match=r"'../x' \(entry 0\)"):
            ShardInfo([Shard("../x", 1)]).validate(tmp_path / "root")

    @pytest.mark.parametrize("path", [None, 3, b"bytes"])
    def test_a_wrong_argument_is_a_short_type_error(self, path) -> None:
        with pytest.raises(TypeError, match="shards_dir") as caught:
            ShardInfo([]).validate(path)
        assert len(str(caught.value)) < 250


class TestLoad:
    def test_entries(self, make_shards_dir) -> None:
        shard_info = ShardInfo.load(make_shards_dir(3, n_examples=5, examples_per_shard=2))
        assert len(shard_info) == 3
        assert shard_info[0] == Shard("acts000000.bin", 2)
        assert shard_info[-1] == Shard(name="acts000002.bin", n_examples=1)
        assert list(shard_info) == list(shard_info[:])
        with pytest.raises(IndexError):
            shard_info[3]

    def test_no_directory(self, tmp_path) -> None:
        with pytest.raises(FileNotFoundError, match="make the shards again or restore") as caught:
            ShardInfo.load(tmp_path / "gone")
        assert f"'{tmp_path}/gone': there is no such directory" in str(caught.value)
        (tmp_path / "file").write_bytes(b"x")
        with pytest.raises(ManifestError, match="found a file; give the directory"):
            ShardInfo.load(tmp_path / "file")

    def test_a_half_written_directory(self, make_shards_dir) -> None:
        shards_dir = make_shards_dir(3)
        (shards_dir / "shards.json").unlink()
        for load in (ShardInfo.load, validate):
            with pytest.raises(ManifestNotFoundError) as caught:
                load(shards_dir)
            assert str(caught.value) == (
                f"Could not read the manifest at '{shards_dir}/shards.json': there is no such "
                "file. The directory holds 3 acts*.bin (the first is 'acts000000.bin'), "
                "metadata.json; saev writes it after each shard, so the directory is half-written, "
                "partly purged or from an older protocol: make the shards again, or restore the "
                "file"
            )

    @pytest.mark.parametrize("name", ["shards.json", "metadata.json"])
    def test_a_link_that_leads_nowhere_is_called_so(self, make_shards_dir, name: str) -> None:
        shards_dir = make_shards_dir()
        (shards_dir / name).unlink()
        (shards_dir / name).symlink_to("gone.json")
        with pytest.raises(ManifestNotFoundError) as caught:
            validate(shards_dir)
        assert str(caught.value) == (
            f"Could not read the manifest at '{shards_dir}/{name}': it is a symbolic link that "
            "leads nowhere: mend the link, or restore the file"
        )

    def test_a_directory_whose_metadata_is_gone(self, make_shards_dir) -> None:
        shards_dir = make_shards_dir(2, labels=True)
        (shards_dir / "metadata.json").unlink()
        for load in (Metadata.load, validate):
            with pytest.raises(ManifestNotFoundError) as caught:
                load(shards_dir)
            assert str(caught.value) == (
                f"Could not read the manifest at '{shards_dir}/metadata.json': there is no such "
                "file. The directory holds 2 acts*.bin (the first is 'acts000000.bin'), "
                "shards.json, labels.bin; saev writes it before the first shard, so it was deleted "
                "since: restore the file, or make the shards again"
            )

    def test_a_directory_of_something_else(self, tmp_path) -> None:
        there = "holds no acts*.bin file and no metadata.json; nothing in it looks like saev's"
        with pytest.raises(ManifestNotFoundError, match=re.escape(there)):
            ShardInfo.load(tmp_path)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('{"name": "acts000000.bin"}', "expected `array`"),
            ('[{"name": "a", "n_examples": -7}]', "found '-7'"),
            ('[{"name": "a", "n_examples": 1, "name": "b"}]', "'name' stands twice"),
            ('[{"name": "../x", "n_examples": 1}]', "'../x' (entry 0): it has an empty"),
            ('[{"name": "a\\u0000b", "n_examples": 1}]', "control character"),
            ('[{"name": "a", "n_examples": 1}, {"name": "a", "n_examples": 1}]', "twice"),
            ('[{"name": "a", "n_examples": 1}, {"name": "A", "n_examples": 1}]', "twin 'a'"),
        ],
    )
    def test_a_hostile_manifest(self, tmp_path, text: str, problem: str) -> None:
        (tmp_path / "shards.json").write_text(text)
        with pytest.raises(ManifestError) as caught:
            ShardInfo.load(tmp_path)
        where = f"Could not read the manifest at '{tmp_path}/shards.json'"
        assert str(caught.value).startswith(where)
        assert problem in str(caught.value)


class TestDump:
    def test_what_is_dumped_is_loaded(self, tmp_path) -> None:
        shard_info = ShardInfo([Shard("acts000000.bin", 4), Shard("acts000001.bin", 0)])
        shard_info.dump(tmp_path)
        assert ShardInfo.load(tmp_path) == shard_info

    def test_the_text_is_saevs(self, tmp_path) -> None:
        ShardInfo([Shard("acts000000.bin", 4)]).dump(tmp_path)
        entries = [{"name": "acts000000.bin", "n_examples": 4}]
        expected = orjson.dumps(entries, option=orjson.OPT_INDENT_2)
        assert (tmp_path / "shards.json").read_bytes() == expected

    def test_it_sweeps_what_a_killed_writer_left(self, tmp_path) -> None:
        pid = os.posix_spawn("/bin/true", ["true"], {})
        os.waitpid(pid, 0)
        here = liveness.tag_of(liveness.this_process()).split("-")[0]
        left = tmp_path / f".shardproof-{here}-{pid}-1-{'0' * 16}.tmp"
        left.write_bytes(b"")
        ShardInfo([]).dump(tmp_path)
        assert os.listdir(tmp_path) == ["shards.json"]


class TestShard:
    @pytest.mark.parametrize(
        ("name", "n_examples", "error"),
        [
            (b"a", 1, TypeError),
            ("a", "1", TypeError),
            ("a", True, TypeError),
            ("a", 1.0, TypeError),
            ("a", -1, ValueError),
            ("a", 2**53 + 1, ValueError),
        ],
    )
    def test_a_wrong_entry_is_refused(self, name, n_examples, error: type[Exception]) -> None:
        with pytest.raises(error, match="expected"):
            ShardInfo([Shard("acts000000.bin", 1), Shard(name, n_examples)])

    def test_a_shard_info_is_a_value(self) -> None:
        with pytest.raises(TypeError, match="expected Shard, found str"):
            ShardInfo(["acts000000.bin"])
        shards = [Shard("a", 1)]
        shard_info = ShardInfo(shards)
        shards.append(Shard("b", 1))
        assert len(shard_info) == 1
        assert shard_info == ShardInfo((Shard("a", 1),))


class TestMetadata:
    def test_derived_figures(self) -> None:
        metadata = Metadata(**FIELDS)
        assert metadata.tokens_per_example == 50
        assert metadata.examples_per_shard == 4
        assert metadata.n_shards == 3
        assert metadata.shard_shape == (4, 2, 50, 768)
        for dtype, size in {"float32": 4, "float16": 2, "bfloat16": 2}.items():
            assert Metadata(**FIELDS, dtype=dtype).shard_bytes == 4 * 2 * 50 * 768 * size
        with pytest.raises(ValueError, match=r"2\*\*63"):  # larger than any file
            Metadata(**FIELDS | {"max_tokens_per_shard": 2**52, "d_model": 2**52})
        assert metadata.labels_bytes == 490
        assert not metadata.has_extra_shard

    @given(st.integers(0, 50), st.integers(1, 5), st.booleans(), st.integers(0, 30))
    def test_the_shards_hold_every_example_and_no_shard_is_idle(
        self, n_examples: int, content: int, cls_token: bool, slack: int
    ) -> None:
        fields = {"n_examples": n_examples, "content_tokens_per_example": content}
        fields |= {
            "cls_token": cls_token,
            "max_tokens_per_shard": (content + cls_token) * 2 + slack,
        }
        metadata = Metadata(**FIELDS | fields)
        room = metadata.n_shards * metadata.examples_per_shard
        assert room - metadata.examples_per_shard < n_examples <= room
        assert metadata.has_extra_shard == (room == n_examples)
        assert metadata.shard_bytes <= metadata.max_tokens_per_shard * metadata.d_model * 4

    @pytest.mark.parametrize(
        ("field", "value", "error"),
        [
            ("d_model", 0, ValueError),
            ("d_model", True, TypeError),
            ("n_examples", -1, ValueError),
            ("max_tokens_per_shard", 99, ValueError),
            ("layers", (), ValueError),
            ("layers", (1, 1), ValueError),
            ("layers", ("a",), TypeError),
        ],
    )
    def test_impossible_figures_are_refused(self, tmp_path, field, value, error) -> None:
        with pytest.raises(error, match=field):
            Metadata(**FIELDS | {field: value})
        (tmp_path / "metadata.json").write_text(json.dumps(FIELDS | {field: value}))
        with pytest.raises(ManifestError, match=r"metadata\.json'.*"):
            Metadata.load(tmp_path)

    @pytest.mark.parametrize(
        ("field", "value", "error", "text"),
        [
            ("family", 3, TypeError, "expected str, found 3"),
            ("cls_token", 1, TypeError, "expected bool, found 1"),
            ("layers", 6, TypeError, "expected tuple[int, ...], found 6"),
            ("dtype", "float64", ValueError, "expected 'float32', 'float16' or 'bfloat16', found"),
            ("protocol", "3.0", ValueError, "expected '1.0.0', '1.1' or '2.1', found '3.0'"),
            ("pixel_agg", "mean", ValueError, "expected 'majority', 'prefer-fg' or None, found"),
        ],
    )
    def test_a_wrong_value_is_refused_when_it_is_given(
        self, field: str, value, error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error) as caught:
            Metadata(**FIELDS | {field: value})
        assert str(caught.value).startswith(f"Metadata(): {field}: {text}")

    def test_numbers_of_numpy_are_numbers(self, tmp_path) -> None:
        fields = FIELDS | {
            name: np.int64(FIELDS[name])
            for name in ("content_tokens_per_example", "d_model", "n_examples")
        }
        metadata = Metadata(**fields | {"layers": tuple(map(np.int32, FIELDS["layers"]))})
        metadata.dump(tmp_path)
        assert Metadata.load(tmp_path) == metadata == Metadata(**FIELDS)
        assert metadata.hash == Metadata(**FIELDS).hash
        assert type(metadata.shard_bytes) is int

    def test_the_pickle_stays_text(self, tmp_path) -> None:
        bomb = "Y3Bvc2l4CnN5c3RlbQooUyd0b3VjaCBwd25lZCcKdFIu"  # base64 of a pickle that runs touch
        Metadata(**FIELDS | {"data": bomb}).dump(tmp_path)
        assert Metadata.load(tmp_path).data == bomb
        assert os.listdir(tmp_path) == ["metadata.json"]

    @given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**53))
    def test_the_hash_is_that_of_saevs_dataclass(self, ckpt: str, n_examples: int) -> None:
        fields = FIELDS | {"ckpt": ckpt, "n_examples": n_examples}
        names = [*FIELDS, "pixel_agg", "dtype", "protocol"]
        order = sorted(names, key=Metadata.__struct_fields__.index)
        as_in_saev = dataclasses.make_dataclass("AsInSaev", order)
        defaults = {"pixel_agg": "majority", "dtype": "float32", "protocol": "2.1"}
        text = orjson.dumps(as_in_saev(**fields, **defaults), option=orjson.OPT_SORT_KEYS)

        assert Metadata(**fields).hash == hashlib.sha256(text).hexdigest()[:8]

    def test_the_fields_stand_in_saevs_order(self) -> None:
        """On which the hash depends; as src/saev/data/shards.py of saev declares them."""
        *names, private = Metadata.__struct_fields__
        assert private == "_file"
        order = "family ckpt layers content_tokens_per_example cls_token d_model n_examples"
        order += " max_tokens_per_shard data dataset pixel_agg dtype protocol"
        assert names == order.split()

    FUTURE = '{"tokenizer": {"name": "x", "big": 123456789012345678901234, "f": 1.0}, '

    @pytest.fixture
    def future(self, make_shards_dir) -> Path:
        """A directory of a later saev: with a field before those that are known, and one behind."""
        shards_dir = make_shards_dir(2)
        path = shards_dir / "metadata.json"
        text = path.read_text().strip().removeprefix("{").removesuffix("}")
        path.write_text(f'{self.FUTURE}{text}, "\\u001b[31m": null}}')
        return shards_dir

    def test_unknown_fields_are_kept(self, future: Path, tmp_path) -> None:
        metadata = pickle.loads(pickle.dumps(Metadata.load(future)))
        before = json.loads((future / "metadata.json").read_text())
        changed = msgspec.structs.replace(metadata, family="other")
        changed.dump(tmp_path)
        after = json.loads((tmp_path / "metadata.json").read_text())
        assert list(after.items()) == list((before | {"family": "other"}).items())
        assert Metadata.load(tmp_path).hash == changed.hash != metadata.hash
        compact = msgspec.json.format((tmp_path / "metadata.json").read_bytes(), indent=-1)
        assert changed.hash == hashlib.sha256(compact).hexdigest()[:8]

    def test_unknown_fields_are_told_once(self, future: Path, caplog) -> None:
        assert validate(future, level="valid").ok
        assert Metadata.load(future) == Metadata.load(future)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.getMessage() == (
            f"'{future}/metadata.json' has fields that are not known here, and are kept: "
            "'\\x1b[31m', 'tokenizer'"
        )

    def test_of_what_was_told_little_is_kept(self, future: Path, caplog) -> None:
        path = future / "metadata.json"
        fields = json.loads(path.read_text())
        for n in range(260):
            path.write_text(json.dumps(fields | {f"field {n} {i}": 0 for i in range(25)}))
            Metadata.load(future)
        assert _metadata._warn_once.cache_info().currsize <= 256
        assert max(len(record.getMessage()) for record in caplog.records) < 500

    def test_unknown_fields_are_no_finding_on_the_command_line(self, future: Path) -> None:
        command = [sys.executable, "-Werror", "-m", "shardproof", "validate", str(future)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("tokenizer") == 1

    @pytest.mark.parametrize("value", ["5", "{}", '"x"', "null"])
    def test_a_field_by_the_name_of_ours_is_unknown(self, future: Path, value: str) -> None:
        path = future / "metadata.json"
        path.write_text(path.read_text().replace("{", f'{{"_file": {value}, ', 1))
        metadata = Metadata.load(future)
        metadata.dump(future)
        assert f'"_file": {value}' in path.read_text()
        assert Metadata.load(future) == metadata

    def test_an_unknown_field_hides_no_broken_one(self, future: Path) -> None:
        path = future / "metadata.json"
        path.write_text(path.read_text().replace('"family"', '"famly"'))
        with pytest.raises(ManifestError, match="family"):
            Metadata.load(future)

"""Plans: the same name from the same inputs, and each row in exactly one shard."""

import errno
import functools
import itertools
import json
import os
import re
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import ManifestError, ReceiptError, receipts
from shardproof.receipts import _canonical
from shardproof.receipts._plan import assign, encode_plan
from tests.helpers.planning import source

DESCRIBED = dict.fromkeys(["etag", "version_id", "hf_repo_id", "hf_revision", "hf_filename"], "x")
FILES = [source("b.txt", 20), source("a.txt", 10), source("sub/c.txt", 30)]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def plan_hash(**changes) -> str:
    said = {
        "dataset_name": "corpus",
        "files": FILES,
        "n_shards": 2,
        "config": {"max_tokens": 5, "text": "x"},
        "tokenizer": {"type": "huggingface", "model": "m", "resolved_revision": "r"},
        "determinism": {"tokenizers": "0.20"},
    }
    return receipts.make_plan(**(said | changes)).plan_hash


class TestHash:
    def test_it_is_known(self) -> None:
        """Another one in another process, or version of Python or of ours, is a lost run."""
        assert plan_hash() == KNOWN_PLAN

    @pytest.mark.parametrize(
        "changes",
        [
            {"files": FILES[::-1]},
            {"config": {"text": "x", "max_tokens": 5}},
            {"files": [*FILES[:2], source("./sub//c.txt", 30)]},
            {"files": [msgspec.structs.replace(file, local_path="/elsewhere/x") for file in FILES]},
            {"config": dict(reversed({"max_tokens": 5, "text": "x"}.items()))},
            {"pins": [receipts.Pin(kind="model", name="m", revision="r", requested="main")]},
        ],
    )
    def test_it_does_not_depend_on(self, changes) -> None:
        assert plan_hash(**changes) == plan_hash()

    @pytest.mark.parametrize(
        "changes",
        [
            {"dataset_name": "other"},
            {"n_shards": 3},
            {"config": {"max_tokens": 6, "text": "x"}},
            {"config": {"max_tokens": 5, "text": "x", "more": None}},
            {"tokenizer": {"type": "huggingface", "model": "m", "resolved_revision": "s"}},
            {"tokenizer": None},
            {"determinism": {"tokenizers": "0.21"}},
            {"files": FILES[:2]},
            {"files": [*FILES[:2], source("sub/c.txt", 31)]},
            *(
                {"files": [*FILES[:2], source("sub/c.txt", 30, **{name: value})]}
                for name, value in (DESCRIBED | {"mtime": 1.5}).items()
            ),
        ],
    )
    def test_it_depends_on(self, changes) -> None:
        assert plan_hash(**changes) != plan_hash()


KNOWN_PLAN = "abca35fb9c64834f"


class TestCanonicalJson:
    @given(json_values)
    def test_it_is_json_of_the_same_value(self, value) -> None:
        assert json.loads(_canonical.canonical_json(value)) == value

    def test_a_tuple_is_a_list_and_a_path_is_its_text(self) -> None:
        found = _canonical.canonical_json({"a": (1, 2), "b": Path("x//y/../z/")})
        assert found == b'{"a":[1,2],"b":"x/z"}'

    @pytest.mark.parametrize(
        ("path", "same"),
        [
            ("./a//b/", "a/b"),
            ("a/c/../b", "a/b"),
            ("s3://bucket//a/./b", "s3://bucket//a/./b"),
            ("cafe\u0301", "caf\u00e9"),
        ],
    )
    def test_one_spelling_of_a_path(self, path: str, same: str) -> None:
        assert _canonical.canonical_path(path) == same

    @pytest.mark.parametrize(
        ("value", "error", "where"),
        [
            ({"a": [1, float("nan")]}, ValueError, r"\$\.a\[1\]: expected a finite number"),
            ({"a": float("inf")}, ValueError, r"\$\.a: expected a finite"),
            ({"a": 2**53 + 1}, ValueError, r"\$\.a: expected integers up to"),
            ({1: 2}, TypeError, r"\$: expected keys of type str, found 1"),
            (
                {"a": {"b": {1}}},
                TypeError,
                r"\$\.a\.b: expected values of JSON or a path, found set",
            ),
            ({"a": b"x"}, TypeError, "found bytes"),
            (functools.reduce(lambda inner, _: [inner], range(99), 1), ValueError, "64 levels"),
        ],
    )
    def test_what_is_refused(self, value, error, where) -> None:
        with pytest.raises(error, match=where):
            _canonical.canonical_json(value)

    @pytest.mark.parametrize("value", [True, False])
    def test_a_truth_value_of_numpy_is_one(self, value: bool) -> None:
        found = _canonical.plain({"a": [np.bool_(value)]})
        assert found == {"a": [value]}
        assert found["a"][0] is value
        assert _canonical.hash_of({"a": np.bool_(value)}) == _canonical.hash_of({"a": value})


sources = st.lists(
    st.builds(source, st.text("abcxyz/", min_size=1, max_size=6), st.integers(0, 1000)),
    min_size=1,
    max_size=12,
    unique_by=lambda file: file.path,
)


class TestAssignment:
    @given(sources, st.integers(1, 12), st.randoms(use_true_random=False))
    def test_each_row_is_in_exactly_one_shard(self, files, n_shards, random) -> None:
        shards = assign(random.sample(files, len(files)), n_shards)
        assert shards == assign(files, n_shards)
        assert [shard.shard_index for shard in shards] == list(range(n_shards))
        parts = [part for shard in shards for part in shard.files]
        for file, row in itertools.product(files, range(13)):
            assert sum(part.path == file.path and part.has_row(row) for part in parts) == 1
        assert sum(shard.total_bytes for shard in shards) == sum(file.size for file in files)
        assert all(list(s.files) == sorted(s.files, key=lambda f: f.path) for s in shards)

    @given(sources, st.integers(1, 12))
    def test_sizes_are_balanced(self, files, n_shards) -> None:
        """Graham's bound for the largest first: at most 4/3 - 1/(3n) of the best there is."""
        sizes = [shard.total_bytes for shard in assign(files, n_shards)]
        total, largest = sum(f.size for f in files), max(f.size for f in files)
        best = max(Fraction(total, n_shards), largest)
        bound = best + (1 - Fraction(1, n_shards)) * largest
        assert len(files) < n_shards or max(sizes) <= bound

    def test_rows_of_the_largest_go_to_most_shards(self) -> None:
        shards = assign([source("small", 10), source("large", 71)], 5)
        assert [
            (f.path, f.row_modulus, f.row_remainder, s.total_bytes) for s in shards for f in s.files
        ] == [
            ("large", 4, 0, 18),
            ("large", 4, 1, 18),
            ("large", 4, 2, 18),
            ("large", 4, 3, 17),
            ("small", None, None, 10),
        ]

    def test_sizes_that_floats_can_not_tell_apart(self) -> None:
        """As a float, the second would be less than half of the first, which is dealt out again."""
        shards = assign([source("a", 2**54 + 1), source("b", 2**53 + 1)], 4)
        assert [(f.path, f.row_modulus, s.total_bytes) for s in shards for f in s.files] == [
            ("a", 2, 2**53 + 1),
            ("a", 2, 2**53),
            ("b", 2, 2**52 + 1),
            ("b", 2, 2**52),
        ]


class TestMakePlan:
    @pytest.mark.parametrize("revision", [None, ""])
    def test_refuses_a_tokenizer_without_a_revision(self, revision: str | None) -> None:
        tokenizer = {"type": "huggingface", "model": "m", "resolved_revision": revision}
        with pytest.raises(ReceiptError, match=r"pin_hub or pin_files"):
            receipts.make_plan("corpus", FILES, n_shards=2, tokenizer=tokenizer)
        with pytest.raises(ReceiptError, match=r"pin_hub or pin_files"):
            receipts.open_run("/nowhere", datasets=[], tokenizer=tokenizer)

    @pytest.mark.parametrize("name", ["", "a/b", "..", "a\nb", "/a", "x" * 256])
    def test_refuses_names_that_are_no_directory(self, name: str) -> None:
        with pytest.raises(ReceiptError, match="dataset_name"):
            receipts.make_plan(name, FILES, n_shards=2)

    def test_refuses_no_files(self) -> None:
        with pytest.raises(ReceiptError, match="found none"):
            receipts.make_plan("corpus", [], n_shards=2)

    def test_what_it_refuses_of_a_file_names_its_path(self, tmp_path) -> None:
        path = tmp_path / "a.txt"
        path.write_text("a")
        (file,) = receipts.input_files(tmp_path)
        for changes, match in [
            ({}, "is named twice"),
            ({"path": "other", "size": -1}, "a size of 0 or more"),
            ({"path": "other", "row_modulus": 2, "row_remainder": 0}, "only some rows"),
        ]:
            changed = msgspec.structs.replace(file, **changes)
            with pytest.raises(ReceiptError, match=match) as caught:
                receipts.make_plan("corpus", [file, changed], n_shards=1)
            assert f"'{path}'" in str(caught.value)
            assert caught.value.path == str(path)
        changed = msgspec.structs.replace(file, size="1")
        with pytest.raises(TypeError, match=re.escape(f"size of '{path}': expected int")):
            receipts.make_plan("corpus", [changed], n_shards=1)

    def test_the_fields_are_nemotrons(self) -> None:
        text = json.loads(encode_plan(receipts.make_plan("corpus", FILES, n_shards=2)))
        assert set(text) >= {
            "version", "created_at", "plan_hash", "dataset_name", "num_shards",
            "source_fingerprint", "config_hash", "determinism_constraints", "resolved_tokenizer",
            "file_assignments",
        }  # fmt: skip
        assert text["version"] == "1.0"
        assert text["created_at"].endswith("Z")
        assert text["resolved_tokenizer"] == {"type": "none"}
        first = text["file_assignments"][0]
        assert set(first) == {"shard_index", "files", "total_bytes"}
        assert set(first["files"][0]) == {"path", "size", "local_path"}

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ({"num_shards": 3}, "an assignment for each of 3 shards"),
            ({"num_shards": "2"}, "num_shards"),
            ({"plan_hash": None}, "plan_hash"),
        ],
    )
    def test_a_plan_that_can_not_be_believed(self, tmp_path, change, match) -> None:
        text = json.loads(encode_plan(receipts.make_plan("corpus", FILES, n_shards=2)))
        (tmp_path / "plan.json").write_text(json.dumps(text | change))
        with pytest.raises(ManifestError, match=match):
            receipts.Plan.load(tmp_path)


class TestSourceFiles:
    @pytest.fixture
    def corpus(self, tmp_path) -> Path:
        (tmp_path / "sub").mkdir()
        for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden", "x.json"):
            (tmp_path / name).write_text(name)
        return tmp_path

    def test_they_are_sorted_and_described(self, corpus) -> None:
        files = receipts.input_files(corpus, "**/*.txt")
        assert [file.path for file in files] == ["a.txt", "b.txt", "sub/c.txt"]
        assert [file.size for file in files] == [5, 5, 9]
        assert files[0].local_path == str(corpus / "a.txt")
        assert files[0].mtime == (corpus / "a.txt").stat().st_mtime
        assert files[0].etag is None

    def test_a_copy_elsewhere_is_the_same_by_its_digest(self, corpus, tmp_path_factory) -> None:
        other = tmp_path_factory.mktemp("elsewhere")
        (other / "a.txt").write_text("a.txt")
        os.utime(other / "a.txt", (1, 1))
        for identity, n_plans in (("digest", 1), ("size", 1), ("mtime", 2)):
            found = [receipts.input_files(at, "a.txt", identity=identity) for at in (corpus, other)]
            hashes = {receipts.make_plan("c", files, n_shards=1).plan_hash for files in found}
            assert len(hashes) == n_plans

    @pytest.mark.parametrize("operation", ["open", "stat", "read"])
    def test_one_that_can_not_be_looked_at_is_named(
        self, corpus, make_shard_faults, operation
    ) -> None:
        make_shard_faults(corpus).fail(operation, errno.EIO, match="sub/c.txt")
        with pytest.raises(OSError, match="Input/output error") as caught:
            receipts.input_files(corpus, identity="digest")
        assert caught.value.filename == str(corpus / "sub" / "c.txt")

    def test_names_that_no_plan_can_hold(self, corpus) -> None:
        (corpus / "new\nline").touch()
        os.close(os.open(os.fsencode(corpus) + b"/\xff", os.O_CREAT))
        with pytest.raises(ReceiptError, match="no plan can hold") as caught:
            receipts.input_files(corpus)
        assert "control character" in str(caught.value)
        assert "lone surrogate" in str(caught.value)

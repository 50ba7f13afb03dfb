"""Dataset specs, which files they mean, and where to go on in them."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.datasets.rows._shard_lists import plan_of
from shardproof.datasets.rows._specs import SPLIT_WORDS, HubSpec, TextSpec, parse_dataset_specs
from shardproof.datasets.rows._splits import chosen_files, split_files
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import RemoteFile

URL = "hf://datasets/owner/name"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:o/n", HubSpec("o/n")),
        ("hf:o/n:test", HubSpec("o/n", split="test")),
        ("hf:o/n:train:content", HubSpec("o/n", text_key="content")),
        ("hf:o/n:en:train", HubSpec("o/n", name="en")),
        ("hf:o/n:20231101.en:validation", HubSpec("o/n", name="20231101.en", split="validation")),
        ("hf:o/n:en:train:content", HubSpec("o/n", name="en", text_key="content")),
        ("hf:o/n:train:test:text", HubSpec("o/n", name="train", split="test")),
        ("hf:o/n::train:test", HubSpec("o/n", text_key="test")),
        ("hf:o/n::content", HubSpec("o/n", text_key="content")),
        ("hf:o/n:en::", HubSpec("o/n", name="en")),
        ("hf:o/n@refs/convert/parquet", HubSpec("o/n", revision="refs/convert/parquet")),
        ("HF: o/n : test ", HubSpec("o/n", split="test")),
        ("txt:a.txt", TextSpec("a.txt")),
        ("txt:/a b/*.txt:line", TextSpec("/a b/*.txt", "line")),
    ],
)
def test_what_a_spec_means(text: str, expected: HubSpec | TextSpec) -> None:
    (spec,) = parse_dataset_specs(text)
    assert spec == expected
    assert spec.spec == str(spec) == text.strip()


def test_several_specs_with_commas_where_people_put_them() -> None:
    specs = parse_dataset_specs(" hf:o/a:train:text,\n hf:o/b , ,txt:c.txt,")
    assert [spec.spec for spec in specs] == ["hf:o/a:train:text", "hf:o/b", "txt:c.txt"]
    assert [spec.kind for spec in specs] == ["hf", "hf", "txt"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hf:", "the repo_id is missing"),
        ("hf:@main", "the repo_id is missing"),
        ("o/n", "expected it to begin with 'hf:' or 'txt:', found 'o/n'"),
        ("hf:a/b/c", "repo_id: expected <owner>/<name> or <name>, found 'a/b/c'"),
        ("hf:a/..", "repo_id"),
        ("hf:a/b--c", "repo_id"),
        (f"hf:a/{'b' * 95}", "repo_id"),
        ("hf:a/b@../../x", "revision"),
        ("hf:a/b:c/d", "split 'c/d': it has a slash"),
        ("hf:a/b:c/d:train", "config 'c/d': it has a slash"),
        ("hf:a/b:train:te\x07xt", "text key 'te\\x07xt': it has a control character"),
        (f"hf:a/b:train:{'k' * 256}", "is over 255 characters"),
        ("hf:a/b:1:2:3:4", "expected at most 4 fields after 'hf', found 5"),
        ("hf:a/b:train:test", "'<repo_id>:train:test:text', or the text key"),
        ("txt:", "the path is missing"),
        ("txt:a\0b", "path 'a\\x00b'"),
        ("txt:C:\\a.txt:b", "a path with ':' or ','"),
    ],
)
def test_a_wrong_spec_is_told_with_its_place_and_the_forms(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="dataset specs") as caught:
        parse_dataset_specs(f"hf:o/n, {text}")
    lines = str(caught.value).splitlines()
    assert lines[0] == "dataset specs that can not be read (1):"
    assert lines[1].startswith("  - at character 9, ")
    assert reason in lines[1]
    assert "  hf:<repo_id>[@revision]:<config>:<split>[:text_key]" in lines
    assert str(caught.value).isascii()


def test_all_wrong_specs_are_told_at_once_but_no_more_than_can_be_read() -> None:
    with pytest.raises(ValueError, match=r"can not be read \(3\)") as caught:
        parse_dataset_specs("x,hf:o/n,hf:a/../b:c/d,y")
    for place in (1, 10, 24):
        assert f"at character {place}, " in str(caught.value)
    assert "repo_id" in str(caught.value)
    assert "slash" in str(caught.value)
    with pytest.raises(ValueError, match="and 980 more"):
        parse_dataset_specs("x," * 1000)


def test_no_spec_at_all_or_a_huge_text() -> None:
    with pytest.raises(ValueError, match="expected one or more, found none"):
        parse_dataset_specs(" , ,\n")
    with pytest.raises(ValueError, match="at most 100000 characters, found 1000000") as caught:
        parse_dataset_specs("hf:o/n,," * 125_000)
    assert len(str(caught.value)) < 500


TEXTS = st.text(st.sampled_from("aB.-_/@ :") | st.characters(), max_size=12)
FIELDS = st.sampled_from([*SPLIT_WORDS, "text", "en"]) | TEXTS


@given(st.text(st.sampled_from("hftx:/@,. \0\n-a") | st.characters(), max_size=40))
def test_any_text_is_specs_that_are_written_the_same_or_refused(text: str) -> None:
    try:
        specs = parse_dataset_specs(text)
    except ValueError:
        return
    for spec in specs:
        bare = dataclasses.replace(spec, spec="")
        assert parse_dataset_specs(spec.spec) == [spec]
        if isinstance(spec, HubSpec) and spec.name is not None:
            assert parse_dataset_specs(bare.spec) == [spec]


def files(*names: str) -> list[RemoteFile]:
    return [RemoteFile(name, size=100) for name in names]


def chosen(names: list[str], split: str = "train", name: str | None = None) -> list[str]:
    for shuffled in (names, names[::-1]):
        found = [file.name for file in split_files(files(*shuffled), split, name, URL)]
    return found


SHARDS = [f"data/{split}-{n:05d}-of-00002.parquet" for split in ("test", "train") for n in (0, 1)]
FOLDERS = ["de/train-0.parquet", "en/test-0.parquet", "en/train-0.parquet"]
CONVERTED = [f"default/{name}.parquet" for name in ("train/0000", "train/0001", "test/0000")]
NUMBERS = ["train_0.parquet", "train_10.parquet", "train_2.parquet"]


@pytest.mark.parametrize(
    ("names", "split", "name", "expected"),
    [
        ([*SHARDS, "README.md"], "train", None, SHARDS[2:]),
        (SHARDS, "test", "default", SHARDS[:2]),
        ([*FOLDERS, *SHARDS], "train", None, SHARDS[2:]),
        (["train.parquet", "valid.parquet"], "validation", None, ["valid.parquet"]),
        (["my-test-file.parquet", "testfile.parquet"], "test", None, ["my-test-file.parquet"]),
        (FOLDERS, "train", None, [FOLDERS[0], FOLDERS[2]]),
        (FOLDERS, "test", "en", FOLDERS[1:2]),
        (CONVERTED, "test", "default", CONVERTED[2:]),
        (NUMBERS, "train", None, None),
        (["x/train_10.parquet", "x/train_9.parquet"], "train", "x", None),
        (["a-train.parquet", "train.parquet"], "train", None, ["train.parquet", "a-train.parquet"]),
        (["train/test-0.parquet", "train/0.parquet"], "test", None, None),
        (["0.parquet", ".0.parquet", "__a/0.parquet"], "train", None, ["0.parquet"]),
    ],
)
def test_which_files_are_those_of_a_split(
    names: list[str], split: str, name: str | None, expected: list[str] | None
) -> None:
    if expected is None and split == "test":
        with pytest.raises(SourceError, match="There are the splits: 'train'"):
            chosen(names, split, name)
    else:
        assert chosen(names, split, name) == (sorted(names) if expected is None else expected)


@pytest.mark.parametrize(
    ("names", "split", "name", "said"),
    [
        (SHARDS, "validation", None, ["the split 'validation'", "4 files", repr(SHARDS[3])]),
        (SHARDS, "train", "en", ["the configuration 'en'", "there are: 'data'"]),
        (["a.csv", "b.jsonl"], "train", None, ["'train': jsonl", "refs/convert/parquet"]),
        (["train.parquet", "test.csv"], "train", None, ["'train': parquet, 'test': csv"]),
        ([*SHARDS, "a.md"], "books", None, ["There are 4 parquet files", "'test', 'train'"]),
        ([], "train", None, ["There are 0 files"]),
        (["test-0.parquet"], "train", None, ["the split 'train'"]),
        (["train-train-0.parquet"], "train", None, ["meant more than once"]),
        (["train.parquet", "train.parquet.gz"], "train", None, ["found 'train.parquet.gz'"]),
        (["data/a-b-00000-of-00001.parquet"], "a-b", None, ["no split can be called 'a-b'"]),
    ],
)
def test_no_files_or_too_many_kinds_of_them(
    names: list[str], split: str, name: str | None, said: list[str]
) -> None:
    with pytest.raises(SourceError) as caught:
        split_files(files(*names), split, name, URL)
    assert caught.value.kind == "unusable"
    for words in [URL, *said]:
        assert words in str(caught.value)


def test_files_that_are_named() -> None:
    def names(*wanted: str) -> list[str]:
        return [file.name for file in chosen_files(files(*SHARDS, "README.md"), wanted, URL)]

    assert names(SHARDS[1], SHARDS[0]) == [SHARDS[1], SHARDS[0]]
    assert names("*/train-*", SHARDS[0]) == [*SHARDS[2:], SHARDS[0]]
    assert names("**/*.parquet") == SHARDS
    with pytest.raises(SourceError, match=r"2 of data_files: 'x.parquet', 'y\*'"):
        names("x.parquet", SHARDS[0], "y*")
    with pytest.raises(SourceError, match=r"1 of data_files: '\*.parquet'"):
        names("*.parquet")
    with pytest.raises(ValueError, match="more than once: 'data/test-00000"):
        names("data/*", SHARDS[0])
    with pytest.raises(ValueError, match=r"only .parquet files are read, found 'README.md'"):
        names("README.md")
    with pytest.raises(ValueError, match=r"data_files: '../\*': it has an empty, '.' or '..' part"):
        names("../*")


@given(st.lists(st.integers(0, 4), max_size=5))
def test_a_plan_leads_to_the_row_that_follows(counts: list[int]) -> None:
    names = [f"{n}.parquet" for n in range(len(counts))]
    rows = [(name, row) for name, n in zip(names, counts, strict=True) for row in range(n)]
    for row_offset in range(len(rows) + 1):
        plan = plan_of(names, counts, row_offset)
        first = len(names) - len(plan.data_files)
        left = [(name, n) for name, n in rows if name in plan.data_files]
        assert list(plan.data_files) == names[first:]
        assert left[plan.in_shard_offset :] == rows[row_offset:]
        if row_offset < len(rows) and row_offset:
            assert plan.shard_label.startswith(f"{rows[row_offset][0]} ({first + 1}/{len(names)})")
    with pytest.raises(
        ValueError, match=f"at most {len(rows)}, the rows of all {len(names)} files"
    ):
        plan_of(names, counts, len(rows) + 1)


def test_a_plan_looks_no_further_than_it_must() -> None:
    endless = itertools.repeat(10)
    assert plan_of(["a", "b", "c"], endless, 12) == (("b", "c"), 2, "b (2/3) row 2")
    assert next(endless) == 10
    assert plan_of(["a", "b"], (1 // 0 for _ in "x"), 0) == (("a", "b"), 0, "a (1/2) row 0")
    assert plan_of(["a"], [3], 3) == ((), 0, "behind the last of 1 shards")

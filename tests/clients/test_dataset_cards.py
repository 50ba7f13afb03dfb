"""The package datasets: of the same repository of a hub we read the same files, in its order."""

import functools
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.packaged_modules import _ALL_ALLOWED_EXTENSIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from shardproof.datasets.rows import hf_load_dataset_sharded
from shardproof.datasets.rows._file_names import is_data
from shardproof.errors import SourceError
from shardproof.testing.faults import Hub, serve_hub

SPLITS = ("train", "validation", "test", "en", "books")

Files = dict[str, list[str]]


@functools.cache
def content(name: str) -> bytes:
    """Rows that tell of which file they are; or what is no parquet."""
    if not name.endswith(".parquet"):
        return b"{}"
    buffer = io.BytesIO()
    pq.write_table(pa.table({"file": [name] * 2, "n": [0, 1]}), buffer)
    return buffer.getvalue()


class Repos:
    """Makes repositories, and asks both what is in them."""

    def __init__(self, hub: Hub, root: Path) -> None:
        self.hub, self.root = hub, root
        self._numbers = itertools.count()

    def make(self, names: Sequence[str], card: str | None, other: str | None = None) -> str:
        repo = f"owner/repo-{next(self._numbers)}"
        for name in names:
            self.hub.put(name, content(name), repo=repo)
        if card is not None:
            self.hub.put("README.md", f"---\n{card}\n---\n# Data\n".encode(), repo=repo)
        if other is not None:
            self.hub.put(".huggingface.yaml", other.encode(), repo=repo)
        self.hub.put("LICENSE", b"free", repo=repo)
        return repo

    def theirs(self, repo: str, name: str | None = None, **options: Any) -> Files | Exception:
        """The files of each split, or why there are none."""
        try:
            builder = datasets.load_dataset_builder(
                repo, name, cache_dir=str(self.root / "theirs"), **options
            )
        except Exception as error:
            return error
        if builder.name != "parquet":
            return ValueError(f"it reads {builder.name}")
        found = builder.config.data_files or {}
        return {str(split): [_path(url) for url in urls] for split, urls in found.items()}

    def rows(self, repo: str, split: str, name: str | None = None) -> Any:
        return hf_load_dataset_sharded(
            repo, split, name, cache_dir=self.root / "ours", endpoint=self.hub.url
        )

    def ours(self, repo: str, split: str, name: str | None = None) -> list[str] | SourceError:
        try:
            return list(self.rows(repo, split, name).data_files)
        except SourceError as error:
            return error

    def compare(self, repo: str, name: str | None = None) -> Files | Exception:
        theirs = self.theirs(repo, name)
        splits = set(SPLITS) | ({*theirs} if isinstance(theirs, dict) else set())
        for split in splits:
            expected = theirs.get(split) if isinstance(theirs, dict) else None
            found = self.ours(repo, split, name)
            if _is_readable(expected):
                assert found == expected, (split, name)
            else:
                assert isinstance(found, SourceError), (split, name, theirs)
        return theirs


def _path(url: str) -> str:
    return url.partition("@")[2].partition("/")[2]


def _is_readable(names: list[str] | None) -> bool:
    """Whether a split can be read by us: in parquet, and no file twice."""
    if not names or len(set(names)) < len(names):
        return False
    return all(name.endswith(".parquet") for name in names)


@pytest.fixture(scope="module")
def repos(tmp_path_factory) -> Iterator[Repos]:
    root = tmp_path_factory.mktemp("cards")
    datasets.disable_progress_bars()
    with serve_hub() as hub, pytest.MonkeyPatch.context() as patch:
        address = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        patch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(root / "hub"))
        patch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
        patch.setattr(datasets.config, "USE_PARQUET_EXPORT", False)
        huggingface_hub.HfFileSystem.clear_instance_cache()
        yield Repos(hub, root)
    datasets.enable_progress_bars()


def config(name: str, **fields: Any) -> dict[str, Any]:
    return {"config_name": name, **fields}


def card(*configs: Any, **fields: Any) -> str:
    return json.dumps({"configs": list(configs), **fields})  # which is YAML


def split(name: str, *paths: str) -> dict[str, Any]:
    return {"split": name, "path": list(paths) if len(paths) > 1 else paths[0]}


EN_DE = ["en/x.parquet", "en/y.parquet", "de/x.parquet", "de/y.parquet"]
EN = config("en", data_files=[split("train", "en/x.parquet"), split("test", "en/y.parquet")])
DE = config("de", data_files=[split("train", "de/x.parquet"), split("validation", "de/y*")])
NUMBERS = ["train_0.parquet", "train_10.parquet", "train_2.parquet"]
SHARDED = [f"data/{s}-{n:05d}-of-00012.parquet" for s in ("train", "test") for n in range(12)]
DEEP = ["a/b.parquet", "a/c/b1.parquet", "a/c/d/b2.parquet", "a/__x/b.parquet", "a/.h/b.parquet"]

GLOBBED = ["e1/train.parquet", "e2/a/test.parquet", "f/train.parquet", "e[12]/dev.parquet"]
TOLD = {"dataset_info": [{"config_name": "de"}, {"config_name": "de"}]}
LABELS = """dataset_info:
  features:
  - {name: file, dtype: string}
  - {name: n, dtype: {class_label: {names: {0: a, 1: b}}}}"""

READ: dict[str, tuple[list[str], str | None, str | None]] = {
    "numbers by a list": (NUMBERS, card(config("a", data_files=NUMBERS[::-1])), None),
    "sharded, any split": ([*SHARDED, "data/books-00000-of-00001.parquet"], None, None),
    "hidden": ([*DEEP, ".b.parquet", "__b.parquet"], None, None),
    "two stars": (DEEP, card(config("a", data_files="a/**/b*.parquet")), None),
    "ranges": (
        [f"{n}.parquet" for n in "abcde"],
        card(config("a", data_files=[split("train", "[a-c].*"), split("test", "[!a-c].*")])),
        None,
    ),
    "a pattern of directories": (GLOBBED, card(config("a", data_dir="e[12]")), None),
    "a default that is null": (EN_DE, card(EN | {"default": None}, DE), "en"),
    "the default, another is told of": (EN_DE, card(EN | {"default": True}, DE, **TOLD), None),
    "a mark in the middle": (EN_DE, "license: mit\n\ufeffconfigs: []", None),
    "the only one that is told of": (EN_DE, card(EN, DE, **TOLD), None),
    "numbers as names of labels": (EN_DE, LABELS, None),
}


@pytest.mark.parametrize("case", READ)
def test_files_order_and_rows_are_the_same(case, repos) -> None:
    names, text, name = READ[case]
    repo = repos.make(names, text)
    theirs = repos.compare(repo, name)
    assert isinstance(theirs, dict), theirs
    readable = [split for split, names in theirs.items() if _is_readable(names)]
    assert readable
    for split in readable:
        stream = datasets.load_dataset(
            repo, name, split=split, streaming=True, cache_dir=str(repos.root / "theirs")
        )
        expected = list(stream)
        assert list(repos.rows(repo, split, name)) == expected
        skip = len(expected) - 1
        assert list(repos.rows(repo, split, name).skip(skip)) == expected[skip:]


DIRECTORIES = [config("en", data_dir="en"), config("fr", data_dir="fr")]

REFUSED: dict[str, tuple[list[str], str | None, str | None]] = {
    "two defaults": (EN_DE, card(EN | {"default": True}, DE | {"default": True}), "en"),
    "a directory that is not there beside": (EN_DE, card(*DIRECTORIES), "en"),
    "out of it": (EN_DE, card(config("a", data_files="../en/*")), None),
    "an address": (EN_DE, card(config("a", data_files="https://localhost:1/x.parquet")), None),
    "a name that is a number": (EN_DE, card({"config_name": 1, "data_files": "en/*"}), None),
    "no YAML": (EN_DE, "configs: [", None),
    "a tab at the end": (EN_DE, "configs:\t\n- config_name: a\n  data_files: en/*", None),
    "two that are told of": (
        EN_DE,
        card(EN, DE, dataset_info=[{"config_name": "de"}, {"config_name": "en"}]),
        None,
    ),
    "one that is told of and not there": (
        EN_DE,
        card(EN, DE, dataset_info={"config_name": "fr"}),
        None,
    ),
    "a split of signs": (["data/a-b-00000-of-00001.parquet"], None, None),
    "no files": ([], None, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_refuses_is_refused(case, repos) -> None:
    names, text, name = REFUSED[case]
    assert isinstance(repos.compare(repos.make(names, text), name), Exception)


def test_the_other_file_goes_before_the_card(repos) -> None:
    theirs = [
        repos.compare(repos.make(EN_DE, card(EN), other))
        for other in (card(DE), "", "license: mit", "configs: null", "configs: 3", "[1]")
    ]
    assert [isinstance(found, dict) for found in theirs] == [True, True, True, True, False, False]


def test_what_older_infos_tell_of_counts_too(repos) -> None:
    repo = repos.make([*EN_DE], card(EN, DE, **TOLD))
    assert repos.compare(repo) == {"train": ["de/x.parquet"], "validation": ["de/y.parquet"]}
    repos.hub.put("dataset_infos.json", b'{"en": {}}', repo=repo)
    assert isinstance(repos.compare(repo), Exception)


def test_a_directory_without_a_card_is_what_data_dir_means(repos) -> None:
    repo = repos.make(["de/train-0.parquet", "en/train-9.parquet", "en/train-10.parquet"], None)
    theirs = repos.theirs(repo, data_dir="en")
    assert theirs == {"train": repos.ours(repo, "train", "en")}
    assert repos.ours(repo, "train", "default") == repos.compare(repo, None)["train"]


def test_it_knows_no_suffix_that_we_do_not() -> None:
    assert [suffix for suffix in _ALL_ALLOWED_EXTENSIONS if not is_data(f"a{suffix}")] == []


# Any names, any cards

WORDS = st.sampled_from([*SPLITS, "dev", "val", "a", "b", "data", "Train", "x_train", "eval"])
DIRECTORY = st.sampled_from(
    ["", "", "data/", "en/", "de/", "train/", "test/", "en/dev/", "__a/", ".b/"]
)
NUMBER = st.sampled_from(["", "_0", "_2", "_10", "-00000-of-00002", "-00001-of-00002", ".1", "x"])
SUFFIX = st.sampled_from([".parquet"] * 9 + [".csv", ".json", ".txt", ""])
NAMES = st.lists(
    st.builds("".join, st.tuples(DIRECTORY, WORDS, NUMBER, SUFFIX)),
    min_size=1,
    max_size=8,
    unique_by=str.lower,
)
PATTERN = st.one_of(
    st.builds("".join, st.tuples(DIRECTORY, WORDS, st.sampled_from(["*", "?*", "_[0-9]*", ".*"]))),
    st.builds(
        "".join, st.tuples(DIRECTORY, st.sampled_from(["*", "**", "**/*.parquet", "[a-f]*"]))
    ),
)


@st.composite
def repositories(draw: st.DrawFn) -> tuple[list[str], str | None]:
    names = draw(NAMES)
    path = st.one_of(st.sampled_from(names), PATTERN)
    paths = st.one_of(path, st.lists(path, min_size=1, max_size=3))
    splits = st.lists(
        st.fixed_dictionaries({"split": st.sampled_from(SPLITS), "path": paths}),
        min_size=1,
        max_size=3,
        unique_by=lambda each: each["split"],
    )
    fields = st.fixed_dictionaries(
        {"config_name": st.sampled_from(["default", "en", "de"])},
        optional={
            "data_files": st.one_of(paths, splits),
            "data_dir": st.sampled_from(["en", "data", "data/", "en/dev"]),
            "default": st.booleans(),
        },
    )
    configs = st.lists(fields, max_size=3, unique_by=lambda each: each["config_name"])
    return names, draw(st.none() | configs.map(lambda some: card(*some)))


@settings(max_examples=150, deadline=None)
@given(repository=repositories(), name=st.sampled_from([None, None, "en", "de", "default"]))
def test_any_repository_is_read_alike(repos, repository, name) -> None:
    names, text = repository
    if text in {None, card()} and name != "default":
        name = None  # a directory then, see above
    try:
        repos.compare(repos.make(names, text), name)
    finally:
        huggingface_hub.HfFileSystem.clear_instance_cache()

"""Dataset cards: which rows they mean, and what is refused of them."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardproof.datasets.rows import _file_names, _listings, hf_load_dataset_sharded
from shardproof.datasets.rows._card import configs_of, told_default, yaml_block
from shardproof.datasets.rows._file_names import meant
from shardproof.datasets.rows._splits import chosen_files, split_files
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import RemoteFile
from shardproof.fetching.transfer._attempts import Limits
from shardproof.testing.faults import Hub

LIMITS = Limits(attempts=2, stall_timeout=5, max_backoff=0)
URL = "hf://datasets/org/name"
CARD = """\
---
license: mit
configs:
- config_name: en
  data_files:
  - split: train
    path: en/x.parquet
  - split: test
    path: en/y.parquet
- config_name: raw
  data_files: raw/part-*
---
# Data
"""
NAMES = ["en/x.parquet", "en/y.parquet", "raw/part-2.parquet", "raw/part-10.parquet"]


def parquet(name: str) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"file": [name] * 2}), buffer)
    return buffer.getvalue()


@pytest.fixture
def repo(shard_hub: Hub) -> Hub:
    for name in [*NAMES, "junk/train-0.parquet", "train.parquet"]:
        shard_hub.put(name, parquet(name), repo="org/name")
    shard_hub.put("README.md", CARD.encode(), repo="org/name")
    return shard_hub


Read = Callable[..., list[str]]


@pytest.fixture
def read(repo: Hub, tmp_path: Path) -> Read:
    """The files of the rows, one for two of them."""

    def read(*arguments: Any, **options: Any) -> list[str]:
        options = {"cache_dir": tmp_path, "endpoint": repo.url, "limits": LIMITS} | options
        rows = hf_load_dataset_sharded("org/name", *arguments, **options)
        return [row["file"] for row in rows][::2]

    return read


def test_the_card_says_which_files_are_those_of_a_split(read: Read, repo: Hub) -> None:
    assert read("train", "en") == ["en/x.parquet"]
    assert read("test", "en") == ["en/y.parquet"]
    assert read("train", "raw") == ["raw/part-10.parquet", "raw/part-2.parquet"]
    assert read(data_files="raw/*.parquet") == ["raw/part-10.parquet", "raw/part-2.parquet"]
    for wrong, said in {
        ("test", "raw"): "There are the splits: 'train'",
        ("train", "fr"): "no configuration 'fr', but: 'en', 'raw'",
        ("train", None): "no default configuration, but: 'en', 'raw'",
    }.items():
        with pytest.raises(SourceError, match=said):
            read(*wrong)


def test_a_card_elsewhere_counts_too(tmp_path: Path) -> None:
    source = tmp_path / "copy"
    for name in NAMES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(parquet(name))
    (source / "README.md").write_text(CARD)
    rows = hf_load_dataset_sharded(
        "org/name", "test", "en", tmp_path / "cache", source=f"file://{source}"
    )
    assert rows.data_files == ["en/y.parquet"]
    (source / "README.md").write_bytes(b"---\nconfigs: \xff\n---\n")
    with pytest.raises(SourceError, match=r"README.md': expected UTF-8, found b'\\xff'"):
        hf_load_dataset_sharded("org/name", source=f"file://{source}")


@pytest.mark.parametrize("fault", ["status-503", "flipped", "stall-in-body"])
def test_a_card_that_does_not_come_at_once_is_asked_for_again(
    fault: str, read: Read, repo: Hub
) -> None:
    repo.fault("README.md", fault, times=1)
    stalls = fault.startswith("stall")  # a busy machine that pauses as long takes some attempts
    limits = Limits(attempts=9 if stalls else 2, stall_timeout=0.3 if stalls else 2, max_backoff=0)
    assert read("test", "en", limits=limits) == ["en/y.parquet"]
    assert repo.requests_for("README.md", fault=fault)


def test_a_card_that_is_not_given_is_not_guessed(read: Read, repo: Hub) -> None:
    repo.fault("README.md", "status-503")
    with pytest.raises(SourceError, match=r"can't be listed, after 2 attempts: .* answers 503"):
        read("train", "en")
    repo.heal()
    repo.fault("README.md", "flipped")
    with pytest.raises(SourceError, match="expected bytes whose digest is git-sha1:"):
        read("train", "en")
    assert read(data_files="train.parquet") == ["train.parquet"]


def test_a_card_that_is_too_long_is_not_read(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listings, "_MAX_CARD_BYTES", len(CARD) - 1)
    with pytest.raises(SourceError, match=f"expected at most .* found {len(CARD)}. Name the"):
        read("train", "en")


def configs(*items: Any) -> str:
    return json.dumps({"configs": list(items)})


EN = {"config_name": "en", "data_files": "x"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (configs(3), r"Expected `object`, got `int` - at `\$\[0\]`"),
        (configs({"data_files": "x"}), "missing required field `config_name`"),
        (configs(EN | {"config_name": "a/b"}), r"config_name`"),
        (configs(EN, EN), "expected different names, found 'en' twice"),
        (configs(EN | {"data_files": {"train": "x"}}), r"got `object` - at `\$\[0\].data_files`"),
        (configs(EN | {"data_files": None}), "got `null`"),
        (configs(EN | {"data_files": ["x", 3]}), "got `int`"),
        (configs(EN | {"data_files": ["x", {}]}), "missing required field `split`"),
        (configs(EN | {"data_files": ["x", {"split": "a", "path": "x"}]}), "paths, or splits of"),
        (configs(EN | {"data_files": [{"split": "a-b", "path": "x"}]}), r"\.split`"),
        (configs(EN | {"data_files": [{"split": "a", "path": 1}]}), r"\.path`"),
        (configs(EN | {"data_files": [{"split": "a", "path": "x"}] * 2}), "different names"),
        (configs(EN | {"data_dir": 3}), r"\.data_dir`"),
        (configs(EN | {"default": "no"}), r"\.default`"),
        ("configs: {a: b}", "Expected `array`, got `object`"),
        ("- a", "line 1 of its YAML: expected fields"),
        ("configs: [\n", "line 2 of its YAML: not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("a: 1\nconfigs: []\nconfigs: []", "line 3 of its YAML: the field 'configs' stands twice"),
        ("a: b\nc: *a", "line 2 of its YAML: it has an anchor or an alias"),
        ("configs: !!python/object/apply:os.system [x]", "it has a tag, 'tag:yaml.org"),
        ("configs: [{<<: {config_name: a}}]", "expected a text for the name of a field"),
        ("configs:\n- 1" + ":1" * 50_000, "no value that can be read"),
        ("configs: " + "[" * 100_000, "expected at most 64 levels"),
        ("configs: 2001-99-99", "no value that can be read: '2001-99-99'"),
        (r'configs: "\UFFFFFFFF"', "not YAML"),
        ("%YAML 1." + "9" * 5000 + "\n---\nconfigs: []", "not YAML"),
    ],
)
def test_a_card_that_cannot_be_understood_is_refused(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        configs_of({"README.md": text}, URL)
    assert str(caught.value).startswith(f"the dataset card '{URL}/README.md'")
    assert len(str(caught.value)) < 400
    assert caught.value.kind == "unusable"


def test_fields_that_change_the_rows_are_refused(read: Read, repo: Hub) -> None:
    fields = {"columns": ["a"], "filters": [], "on_bad_files": "skip"}
    card = configs({"config_name": "en", "data_files": "en/x.parquet"} | fields)
    repo.put("README.md", f"---\n{card}\n---\n".encode(), repo="org/name")
    with pytest.raises(SourceError, match="'en' has columns, filters, on_bad_files, which is not"):
        read()


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("---\na: 1\n---\n# x", "a: 1"),
        ("\n ---\r\na: 1\r\n--- \r\n", "a: 1"),
        ("---\na: 1\n", ""),
        ("# x\n---\na: 1\n---\n", ""),
    ],
)
def test_where_the_yaml_of_a_readme_is(text: str, block: str) -> None:
    assert yaml_block(text) == block


def test_without_a_package_for_yaml_the_command_is_told(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match=r"pip install 'shardproof\[hf\]'"):
        read("train", "en")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a", "b.c"]),
        ("**", ["a", "b.c", "d/e", "d/f/e", "d/f/g"]),
        ("d/**", ["d/e", "d/f/e", "d/f/g"]),
        ("**/e", ["d/e", "d/f/e"]),
        ("**/f/**/e", ["d/f/e"]),
        ("*/*", ["d/e"]),
        ("?", ["a"]),
        ("[!a].c", ["b.c"]),
        (".h/*", [".h/a"]),
        ("__p/*", ["__p/a"]),
        ("*/a", []),
        ("README.*", []),
        ("README.m[d]", []),
        ("d", []),
        ("a[", []),
    ],
)
def test_what_a_pattern_means(pattern: str, expected: list[str]) -> None:
    names = sorted(["a", "b.c", "d/e", "d/f/e", "d/f/g", ".h/a", "__p/a", "README.md"])
    assert [*meant(pattern, names)] == expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("**/" + "x" * 256 + "/*", "a part of it is over 255 characters"),
        ("[" * 4096, "it is over 4095 characters"),
    ],
)
def test_a_pattern_that_no_name_could_fit_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        next(meant(pattern, ["x"]))
    assert len(str(caught.value)) < 400


def split_of(card: str, *names: str) -> list[str]:
    configs = configs_of({"README.md": card}, URL)
    files = [RemoteFile(name) for name in names]
    return [file.name for file in split_files(files, "train", configs[0].name, URL, configs)]


XX, FR = ({"config_name": name, "data_files": f"{name[0]}.parquet"} for name in ("xx", "fr"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (configs(EN | {"default": True}, FR | {"default": True}), "two default .*'en' and 'fr'"),
        (configs(EN | {"data_files": "x" + "[" * 5000}), "first configuration: 'x.* 4095 char"),
        (configs(EN | {"data_files": "hf://a/b"}), "it is an address"),
        (configs(EN | {"data_files": "a**/x"}), "can only be a whole part"),
        (configs(EN | {"data_files": "gone.parquet"}), "there is no file 'gone.parquet'"),
        (configs({"config_name": "en", "data_dir": "gone"}), "'en' has no files"),
        (configs({"config_name": "en", "data_dir": ".."}), "empty, '.' or '..' part"),
        (configs(XX, FR | {"default": True, "data_files": "*.md"}), "no file fits its patterns"),
    ],
)
def test_a_card_that_means_no_files_or_too_many_is_refused(text: str, said: str) -> None:
    files = [RemoteFile("x.parquet"), RemoteFile("y.parquet")]
    with pytest.raises(SourceError, match=said):
        split_files(files, "train", None, URL, configs_of({"README.md": text}, URL))


def test_infos_name_the_default_where_no_older_ones_may_name_another() -> None:
    texts = {"README.md": json.dumps({"configs": [XX, FR], "dataset_info": {"config_name": "fr"}})}
    found, told = configs_of(texts, URL), told_default(texts, URL)
    files = [RemoteFile("x.parquet"), RemoteFile("f.parquet")]
    assert split_files(files, "train", None, URL, found, told=told) == files[1:]
    files.append(RemoteFile("dataset_infos.json"))
    with pytest.raises(SourceError, match="no default configuration"):
        split_files(files, "train", None, URL, found, told=told)
    with pytest.raises(SourceError, match=r"dataset_info\[0\].config_name: expected a name"):
        told_default({"README.md": "dataset_info: [3]"}, URL)


def test_the_rows_of_a_script_are_not_guessed(read: Read, repo: Hub) -> None:
    repo.put("name.py", b"", repo="org/name")
    with pytest.raises(SourceError, match=r"what the script 'name.py' makes, which is not run"):
        read()


def test_a_name_that_no_file_can_have_is_refused() -> None:
    name = "a/" * 2048 + "x.parquet"
    said = "lists 'a/a/.*, which is refused: its path is over 4095 bytes"
    with pytest.raises(SourceError, match=said):
        split_of(configs(EN | {"data_files": "**"}), "x.parquet", name)
    with pytest.raises(SourceError, match=said):
        chosen_files([RemoteFile(name)], ["**/a/**"], URL)


@pytest.mark.parametrize(
    ("n_compared", "card"),
    [
        (1000, configs(EN | {"data_files": "**/a/a/a/a/*.parquet"})),
        (6710, configs({"config_name": "en", "data_dir": "**/a"})),
        (220, configs(*({"config_name": f"c{n}", "data_dir": "a" + "/a" * n} for n in range(2)))),
    ],
)
def test_what_is_compared_with_the_patterns_of_a_card_is_bounded(
    n_compared: int, card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the parts of names, since a name of many parts takes as long as many names."""
    names = [f"{'a/' * 9}{n}.parquet" for n in range(10)]
    monkeypatch.setattr(_file_names, "_MOST_COMPARISONS", n_compared)
    assert split_of(card, *names) == names
    monkeypatch.setattr(_file_names, "_MOST_COMPARISONS", n_compared - 1)
    with pytest.raises(SourceError, match="too many patterns for so many files"):
        split_of(card, *names)

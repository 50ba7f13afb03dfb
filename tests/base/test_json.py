"""JSON from outside has limits, and its refusals name file, line and field."""

import contextlib
import json
import os
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from shardproof import ManifestError, ManifestNotFoundError
from shardproof._base import json as _json


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    n: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0


class Loose(msgspec.Struct):
    name: str


def refusal(data: bytes, kind=list[Entry]) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        _json.decode(data, kind, path="/dir/shards.json")
    assert str(caught.value).startswith("Could not read the manifest at '/dir/shards.json'")
    return caught.value


def test_good_json() -> None:
    assert _json.decode(b'[{"name": "a:b,[{", "n": 3}]', list[Entry], path="p") == [
        Entry("a:b,[{", 3)
    ]
    assert _json.decode(b"[]", list[Entry], path="p") == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "truncated"),
        (b"[] x", "trailing"),
        (b'[{"name": "a", "n": NaN}]', "not JSON"),
        (b'[{"name": "a", "n": Infinity}]', "not JSON"),
        (b'[{"name": "a", "n": 1e400}]', "out of range"),
        (b'[{"name": "a", "n": ' + b"9" * 5000 + b"}]", "out of range"),
        (b'[{"name": "a", "n": 9007199254740993}]', "9007199254740992"),
        (b'[{"name": "a", "n": -1}]', ">= 0"),
        (b'[{"name": "a", "n": 1.0}]', "got `float`"),
        (b'[{"name": "a", "n": true}]', "got `bool`"),
        (b'[{"n": 1}]', "missing required field `name`"),
        (b'[{"name": "a", "extra": 1}]', "unknown field `extra`"),
        (b'{"name": "a"}', "expected `array`, got `object`"),
        (b'["a"]', "expected `object`, got `str`"),
        (b'[{"name": "\\ud800abcdefgh"}]', "surrogate"),
        (b'[{"name": "\xff"}]', "UTF-8"),
        (b"\xef\xbb\xbf[]", "not JSON"),
        ("[]".encode("utf-16"), "not JSON"),
        (b'[{"name": "a", "name": "b"}]', "'name' stands twice"),
    ],
)
def test_hostile_json(data: bytes, problem: str) -> None:
    assert problem in refusal(data).problem


def test_nesting_is_refused_before_it_ends_the_process_and_all_of_a_text_is_utf_8() -> None:
    deep = b'{"name": "a", "x": ' + b"[" * 10**6 + b"]" * 10**6 + b"}"
    assert "nested" in refusal(deep, Loose).problem
    assert "UTF-8" in refusal(b'[{"name": "a", "other\xff": 0}]', list[Loose]).problem


@pytest.mark.parametrize(
    "text", ['[{"name": %s%s}]', '[{"name": 1, "x": %s%s}]', "[%s", '[{"x":%s']
)
def test_at_no_depth_is_a_refusal_another_error(text: str) -> None:
    for n_levels in [99, 101, 340, *range(700, 1001), 3000]:  # Python's limit is 1000 calls
        brackets = ("[" * n_levels, "]" * n_levels)[: text.count("%s")]
        refusal((text % brackets).encode())


def test_brackets_in_text_are_no_levels() -> None:
    names = ["[" * 500, '"]' * 500, "{"]
    data = json.dumps([{"name": name, "x": 1} for name in names]).encode()
    assert [item.name for item in _json.decode(data, list[Loose], path="f")] == names
    twice = b'[{"name": "a", "%s": 1, "%s": 1}]' % (b"[" * 120, b"[" * 120)
    assert "stands twice" in refusal(twice, list[Loose]).problem


def test_a_refusal_names_line_and_field() -> None:
    text = b'[\n {"name": "a", "n": 1},\n {"name": "b",\n  "n": -1}]'
    error = refusal(text)
    assert (error.path, error.line, error.field) == ("/dir/shards.json", 3, "$[1].n")
    assert "line 3, field $[1].n: expected `int` >= 0, found '-1'" in str(error)


HOSTILE = "\x1b]0;\x07\nForged line\x9b2J\u202e"


@pytest.mark.parametrize(
    "data",
    [
        json.dumps([{"name": "a", HOSTILE: 1}], ensure_ascii=False),
        json.dumps([{"name": "a", "x" * 10**6: 1}]),
        json.dumps([{"name": "a", "n": HOSTILE}], ensure_ascii=False),
        f'[{{"name": "a"}} {HOSTILE}',
        f'[{{"name": "{HOSTILE}',
        '[{"name": "a", "name": "\\u001b"}]',
        "[" * 10**6,
    ],
    ids=lambda data: ascii(data[:20]),
)
@pytest.mark.parametrize("kind", [list[Entry], list[Loose]])
def test_a_traceback_has_only_the_words_of_the_refusal(data: str, kind: Any) -> None:
    with contextlib.suppress(ManifestError):  # some don't mind a field that they don't know
        _json.decode(data.encode(), kind, path="/dir/shards.json")
        return
    text = "".join(traceback.format_exception(refusal(data.encode(), kind)))
    assert text.replace("\n", "").isprintable()
    assert not any(line.startswith("Forged") for line in text.splitlines())
    assert len(text) < 10_000


def test_nor_has_one_of_a_field_that_is_not_known() -> None:
    with pytest.raises(ManifestError) as caught:
        _json.fields_in(b'{"x": 1e999}', path="/dir/metadata.json")
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


class Tree(msgspec.Struct):
    sizes: list[int]
    name: str = ""


@pytest.mark.parametrize(
    ("data", "kind", "found"),
    [
        (b'{"sizes": [1, 2, "x"]}', Tree, """'"x"'"""),
        (b'{"sizes": [1, 2, "x"' + b"," + b" " * 2**20 + b'"y"]}', Tree, None),
        (b'{"sizes": ["x"], "name": oops', Tree, None),
        (b'[{"name": "a"}, {"n": 1}]', list[Entry], """'{"n": 1}'"""),
        (b'[{"name": "a", "n": 9007199254740993}]', list[Entry], "'9007199254740993'"),
        (b'[{"name": 3, "n": ' + b"9" * 5000 + b"}]", list[Entry], "'3'"),
        (b"3", list[Entry], None),
    ],
)
def test_a_refusal_shows_what_it_found_where_that_can_be_told(data, kind, found) -> None:
    problem = refusal(data, kind).problem
    assert problem.partition(", found ")[2] == (found or "")


@pytest.mark.parametrize(
    ("data", "line", "field"),
    [
        (b'[\n {"name": "a"},\n {"name": oops}]', 3, None),
        (b'[\n {"name": "a", "n": 1},\n {"name": "b",\n  "n": 1,\n  "n": 2}]', 5, "n"),
        (b'[{"name": "b", "\\u006eame": "c"}]', None, "name"),  # spelled otherwise
    ],
)
def test_what_is_malformed_or_stands_twice_is_named_with_its_line(data, line, field) -> None:
    error = refusal(data)
    assert (error.line, error.field) == (line, field)


def test_of_a_long_duplicate_key_no_line_is_told() -> None:
    """To look for it would take a pattern of a hundred times its length."""
    key = "x" * 1000
    assert refusal(f'{{"name": "a", "{key}": 1, "{key}": 2}}'.encode(), Loose).line is None


def test_items_are_counted_before_memory_is_spent(monkeypatch) -> None:
    bomb = b"[" + b"{}," * 10**6 + b"{}]"
    assert most_memory(lambda: refusal(bomb)) < 10 * 2**20
    monkeypatch.setattr(_json, "MAX_ITEMS", 1000)
    assert "at most 1000 values" in refusal(bomb).problem


def most_memory(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestRead:
    def test_a_file_is_read_and_takes_little_memory(self, tmp_path) -> None:
        (tmp_path / "x.json").write_bytes(b'{"name": "a"}')
        assert _json.read(str(tmp_path), "x.json", Loose) == Loose("a")
        assert most_memory(lambda: _json.read(str(tmp_path), "x.json", Loose)) < 2**20

    def test_no_file(self, tmp_path) -> None:
        with pytest.raises(ManifestNotFoundError) as caught:
            _json.read(str(tmp_path), "x.json", Loose)
        assert caught.value.path == str(tmp_path / "x.json")
        assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)

    @pytest.mark.parametrize("size", [101, 2**40])
    def test_too_large_a_file_is_refused_unread(self, tmp_path, size: int) -> None:
        with open(tmp_path / "x.json", "wb") as file:
            file.truncate(size)
        with pytest.raises(ManifestError, match=f"at most 100 bytes, found {size}"):
            _json.read(str(tmp_path), "x.json", Loose, max_bytes=100)

    def test_a_file_that_grows_while_it_is_read(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "x.json").write_bytes(b" " * 50)
        real = os.fstat

        def fstat_then_grow(fd):
            status = real(fd)
            with open(tmp_path / "x.json", "ab") as file:
                file.write(b" " * 100)
            return status

        monkeypatch.setattr("shardproof._base.json.os.fstat", fstat_then_grow)
        with pytest.raises(ManifestError, match="at most 100 bytes"):
            _json.read(str(tmp_path), "x.json", Loose, max_bytes=100)

"""YAML from outside; what dataset cards need of it is tested with them."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof._base import yaml
from shardproof._base.yaml import NotYamlError, YamlReader
from tests.helpers.drawing import examples


def read(text: str, field: str = "a", default: object = None, **how: bool) -> object:
    return YamlReader("it", **how).field(text, field, default)


def test_values_as_they_are_written() -> None:
    text = "a: [12:30, yes, 007, ~, 'x', 1.5, 2001-99-99, {1: null}]"
    expected = ["12:30", "yes", "007", "~", "x", "1.5", "2001-99-99", {"1": "null"}]
    assert read(text, "a", as_written=True) == expected
    assert read("a: 1" + "0" * 5000, "a", as_written=True) == "1" + "0" * 5000
    assert read("", "a", 3, as_written=True) == 3


@pytest.mark.parametrize("as_written", [True, False])
@pytest.mark.parametrize("text", ["a: &x [1]\nb: *x", "a: !!int 1", "a: 1\na: 2", "[1]: a", "- a"])
def test_what_is_never_read(text: str, as_written: bool) -> None:
    with pytest.raises(NotYamlError):
        read(text, "a", as_written=as_written)


def test_a_billion_laughs_are_none() -> None:
    names = [chr(97 + n) for n in range(24)]
    lines = [
        f"{name}: &{name} [*{before}, *{before}]" for before, name in itertools.pairwise(names)
    ]
    with pytest.raises(NotYamlError, match="an anchor or an alias"):
        read("\n".join(["a: &a [x, x]", *lines]), "x")


def test_one_item_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes many seconds to read as many as are allowed."""
    monkeypatch.setattr(yaml, "_MAX_ITEMS", 3000)
    assert len(read("a: [" + "b," * 2990 + "]", "a")) == 2990
    with pytest.raises(NotYamlError, match="expected at most 64 levels and 3000 items"):
        read("a: [" + "b," * 3000 + "]", "a")


def test_a_long_yaml_is_not_read() -> None:
    with pytest.raises(NotYamlError, match="expected at most 2097152 bytes of YAML"):
        read("a: " + "b" * yaml.MAX_YAML_BYTES, "a")


@examples(200)
@given(st.text("a:-[]{}&*!|>'\"\\#%@? \n\t1\x00é", max_size=60), st.booleans())
def test_any_text_has_an_answer(text: str, as_written: bool) -> None:
    with contextlib.suppress(NotYamlError):
        read(text, "a", as_written=as_written)

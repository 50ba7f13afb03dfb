"""Wrong arguments of what makes samples are told in one line, by the name that was written."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.testing import Layout, expected_findings
from shardproof.testing.faults.fake import fake_shards_dir_maker
from shardproof.testing.samples._directories import shards_dir_maker
from shardproof.testing.samples.checkpoint import checkpoint_dir_maker
from shardproof.testing.samples.receipts import receipts_dir_maker

Makers = dict[str, Callable[..., Any]]


@pytest.fixture
def makers(tmp_path: Path) -> Iterator[Makers]:
    numbers = count()

    def new_base() -> Path:
        return tmp_path / str(next(numbers))

    with (
        contextmanager(shards_dir_maker)(new_base) as of_shards,
        contextmanager(receipts_dir_maker)(new_base) as of_receipts,
        contextmanager(checkpoint_dir_maker)(new_base) as of_checkpoints,
        fake_shards_dir_maker() as of_fakes,
    ):
        yield {
            "layout": Layout,
            "receipts layout": partial(Layout, format="receipts"),
            "checkpoint layout": partial(Layout, format="checkpoint"),
            "make_shards_dir": of_shards,
            "make_receipts_dir": of_receipts,
            "make_checkpoint": of_checkpoints,
            "make_fake_shards_dir": of_fakes,
        }


def made(value: Any) -> Any:
    """What was made, without where."""
    return (
        sorted(file.name for file in value.parent.rglob("*")) if isinstance(value, Path) else value
    )


LISTS = [
    ("layout", "missing"),
    ("make_shards_dir", "unreadable_shards"),
    ("make_fake_shards_dir", "missing_shards"),
    ("receipts layout", "started"),
    ("make_receipts_dir", "missing_outputs"),
    ("checkpoint layout", "stale"),
    ("make_checkpoint", "missing_ranks"),
]


WRONG: list[tuple[Any, type[Exception], str]] = [
    *(
        (given, TypeError, r"expected indices, such as \[1\], found ")
        for given in (1, True, "12", object, np.array(1))
    ),
    *(
        ([0, index], TypeError, "expected indices of type int, found ")
        for index in (True, 1.0, "1", None, np.bool_(True))
    ),
    *(
        ([index], ValueError, f"expected indices from 0 below 3, found {index}$")
        for index in (-1, 3, np.int8(-1), 10**30)
    ),
]
RIGHT = [np.array([1]), [np.int64(1)], (np.uint8(1),), {1}, range(1, 2)]


@pytest.mark.parametrize(("maker", "name"), LISTS)
def test_lists_of_indices(maker: str, name: str, makers: Makers) -> None:
    for wrong, error, text in WRONG:
        with pytest.raises(error, match=f"^{name}: {text}") as caught:
            makers[maker](**{name: wrong})
        assert len(str(caught.value)) < 90
    for right in RIGHT:
        assert made(makers[maker](**{name: right})) == made(makers[maker](**{name: [1]}))
    assert made(makers[maker](**{name: None})) == made(makers[maker]())


@pytest.mark.parametrize(
    ("maker", "name"),
    [
        ("layout", "n_shards"),
        ("layout", "d_model"),
        ("make_shards_dir", "n_shards"),
        ("receipts layout", "seed"),
        ("checkpoint layout", "step"),
        ("make_checkpoint", "world_size"),
    ],
)
def test_numbers(maker: str, name: str, makers: Makers) -> None:
    assert made(makers[maker](**{name: np.int64(2)})) == made(makers[maker](**{name: 2}))
    for wrong in (True, 2.0, "2", None, [2]):
        with pytest.raises(TypeError, match=f"^{name}: expected int, found "):
            makers[maker](**{name: wrong})


MISSPELT = [
    ("layout", "truncated_shards", "truncated"),
    ("make_shards_dir", "unreadble_shards", "unreadable_shards"),
    ("make_fake_shards_dir", "missing_shard", "missing_shards"),
    ("make_receipts_dir", "missing_output", "missing_outputs"),
    ("checkpoint layout", "missing_ranks", "missing"),
    ("make_checkpoint", "worldsize", "world_size"),
]


@pytest.mark.parametrize(("maker", "wrong", "right"), MISSPELT)
def test_a_misspelt_keyword_names_the_nearest(maker, wrong, right, makers) -> None:
    with pytest.raises(
        TypeError, match=f"^[A-Za-z_]+: there is no '{wrong}'; did you mean '{right}'"
    ):
        makers[maker](**{wrong: [1]})


def test_both_names_of_a_state_count(makers: Makers) -> None:
    path = makers["make_shards_dir"](4, missing_shards=[1], missing=[2])
    assert sorted(file.name for file in path.glob("acts*")) == ["acts000000.bin", "acts000003.bin"]
    with pytest.raises(ValueError, match="missing_shards: shard 1 is already named under missing"):
        makers["make_shards_dir"](4, missing_shards=[1], missing=[1])


@pytest.mark.parametrize("wrong", [None, b"valid", np.array(["valid"])], ids=repr)
def test_what_is_no_word_is_quoted_as_it_is(wrong: Any) -> None:
    found = f"found {wrong!r}"
    with pytest.raises(ValueError, match=re.escape(f"complete, valid, {found}")):
        expected_findings(Layout(), "/data", level=wrong)
    with pytest.raises(ValueError, match=re.escape(f"sha256, sha256-tree, {found}")):
        Layout(format="checkpoint", algorithm=wrong)
    with pytest.raises(ValueError, match=re.escape(f"hf-cache, digests, {found}")):
        Layout(format=wrong)

"""Names that imply how many there are."""

import pytest

from shardproof.errors import ManifestError
from shardproof.formats._jobs import expected_by_names


def name(index: int, count: int = 4, before: str = "train-") -> str:
    return f"{before}{index:05}-of-{count:05}.parquet"


@pytest.mark.parametrize(
    ("here", "first", "begins"),
    [([0, 1, 2, 3], 0, 0), ([1, 4], 0, 1), ([2, 3], 1, 1), ([2, 3], 0, 0), ([0, 1], 1, 0)],
)
def test_those_that_are_missing_are_promised(here: list[int], first: int, begins: int) -> None:
    found = expected_by_names("/x", [name(n) for n in here], first=first)
    assert list(found.names) == [name(n) for n in range(begins, begins + 4)]
    assert not found.contradictions


def test_each_set_counts_for_itself_and_a_number_beyond_the_count_is_told() -> None:
    found = expected_by_names("/x", [name(0), name(7), name(1, 2, "test-"), "other.parquet"])
    assert len(found.names) == 4 + 2 + 1
    assert [each.name for each in found.contradictions] == [name(7)]


@pytest.mark.parametrize("text", ["x-00000-of-00000.parquet", "x-0000-of-999999.parquet", "of-1"])
def test_what_only_looks_like_one_is_promised_alone(text: str) -> None:
    assert list(expected_by_names("/x", [text]).names) == [text]


def test_a_count_that_is_yet_to_come() -> None:
    """As `datasets` names shards until it has written all of a split."""
    found = expected_by_names("/x", [name(0), "train-00001-of-NNNNN.parquet"])
    assert [each.name for each in found.contradictions] == ["train-00001-of-NNNNN.parquet"]
    assert "train-00001-of-NNNNN.parquet" in found.names


HASHES = ["a09b74b3ef9c3b56", "b42a775f407cee45", "0123456789abcdef"]


def marked(index: int, count: int, digits: str) -> str:
    return f"train-{index:05}-of-{count:05}-{digits}.parquet"


def test_shards_with_a_fingerprint_each_are_one_set() -> None:
    """As push_to_hub of datasets wrote them (huggingface/datasets#4402)."""
    names = [marked(n, 3, digits) for n, digits in enumerate(HASHES)]
    assert expected_by_names("/x", names) == (names, [])
    found = expected_by_names("/x", [names[0], names[2]])
    assert set(found.names) == {names[0], names[2], marked(1, 3, "*")}
    again = marked(1, 3, HASHES[0])
    assert set(expected_by_names("/x", [*names, again]).names) == {*names, again}


def test_a_fingerprint_that_all_have_is_that_of_what_is_missing() -> None:
    names = [marked(n, 3, HASHES[0]) for n in range(3)]
    assert list(expected_by_names("/x", [names[0], names[2]]).names) == names
    assert list(expected_by_names("/x", [names[1]]).names) == names


def test_a_number_beyond_the_count_among_fingerprints() -> None:
    names = [marked(n, 2, digits) for n, digits in zip([0, 5], HASHES, strict=False)]
    assert [each.name for each in expected_by_names("/x", names).contradictions] == [names[1]]


def test_many_sets_that_multiply_are_refused_and_not_made() -> None:
    """Thirty files of two bytes claimed 2.7 million; two sets with a file left may claim theirs."""
    with pytest.raises(ManifestError, match="claim 2700435"):
        expected_by_names("/x", [name(n, 90_000 + n) for n in range(30)])
    there = [name(0, 90_000, f"{each}-") for each in "ab"]
    assert len(expected_by_names("/x", there).names) == 180_000

"""The library's verifier and loader, held against the oracles of the kit."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from shardproof.checkpoint import MultiShardLoader, ShardFileVerifier
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.testing import Layout, shards_dir, write_layout
from shardproof.testing.samples.checkpoint import (
    CheckpointMetadataState,
    CheckpointShardState,
    expected_problems,
)
from shardproof.testing.strategies import layouts
from tests.helpers.checkpoint_lies import hostile_metadata, metadata_lies
from tests.helpers.checkpoint_reader import read_checkpoint
from tests.helpers.drawing import examples

LYING = {
    "default": Layout(format="checkpoint"),
    "small": Layout(
        1, format="checkpoint", step=0, tensors=[[("a", "bool", ()), ("b", "int8", (0,))]]
    ),
}


def said_by_ours(prefix: Path, level: Any) -> list[tuple[int | None, str]]:
    """What our verifier finds, in the oracle's words."""
    result = ShardFileVerifier().verify_checkpoint(prefix, level=level)
    found = [(rank_of(finding.path), str(finding.kind)) for finding in result.findings]
    found += [(rank_of(path), "unproven") for path in result.unproven if level == "valid"]
    assert result.is_valid == (not result.findings)
    assert result.exit_code == (1 if result.findings else 0)
    in_words = ("missing", "unreadable", "not-regular")
    return sorted(
        (rank, kind if rank is not None or kind in in_words else "refused") for rank, kind in found
    )


def assert_agree(value: Layout) -> None:
    with shards_dir(value) as prefix:
        for level in ("present", "complete", "valid"):
            assert said_by_ours(prefix, level) == [*expected_problems(value, level=level)]


def rank_of(path: Path) -> int | None:
    name = path.name.removeprefix("model_shard_").removesuffix(".shard")
    return int(name) if name.isdigit() else None


def is_read_by_ours(prefix: Path, text: bytes) -> bool:
    prefix.with_name("model.metadata.json").write_bytes(text)
    try:
        MultiShardLoader().load_metadata(prefix)
    except CheckpointError:
        return False
    return True


STATES = {
    **{f"shards {s}": {} if s == "ok" else {s.value: [1, 2]} for s in CheckpointShardState},
    **{f"metadata {s}": {"metadata": s, "missing": [1]} for s in CheckpointMetadataState},
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_the_verifier_knows_every_state(state: dict[str, Any]) -> None:
    assert_agree(Layout(format="checkpoint", **state))


@pytest.mark.slow
@examples(150)
@given(layouts(["checkpoint"], states=[*CheckpointShardState]))
def test_the_verifier_agrees(value: Layout) -> None:
    assert_agree(value)


@pytest.mark.slow
@examples(150)
@given(layouts(["checkpoint"], states=[*CheckpointShardState]))
def test_the_loader_gives_the_right_bytes_or_none(value: Layout) -> None:
    with shards_dir(value) as prefix:
        if expected_problems(value):
            with pytest.raises(CheckpointError):
                MultiShardLoader().load_all_shards(prefix)
        else:
            shards = MultiShardLoader().load_all_shards(prefix)
            found = [{name: a.tobytes() for name, a in each.items()} for each in shards]
            assert found == read_checkpoint(prefix)
            shapes = [[tuple(array.shape) for array in each.values()] for each in shards]
            assert shapes == [[each.shape for each in rank] for rank in value.tensors]


@pytest.mark.slow
@examples(300)
@given(hostile_metadata())
def test_the_loader_believes_no_metadata_that_lie(text: bytes) -> None:
    with shards_dir(Layout(format="checkpoint")) as prefix:
        prefix.with_name("model.metadata.json").write_bytes(text)
        with pytest.raises(CheckpointError) as error:
            MultiShardLoader().load_metadata(prefix)
        assert not isinstance(error.value, CheckpointNotFoundError)
        assert said_by_ours(prefix, "present") == [(None, "refused")]


@pytest.mark.slow
@pytest.mark.parametrize("value", LYING.values(), ids=LYING)
def test_it_believes_none_of_all_lies(value: Layout, tmp_path: Path) -> None:
    prefix = write_layout(value, tmp_path / value.prefix)
    assert MultiShardLoader().load_metadata(prefix).step == value.step
    lies = [*metadata_lies(value)]
    assert len(lies) > 250
    assert [text for text in lies if is_read_by_ours(prefix, text)] == []

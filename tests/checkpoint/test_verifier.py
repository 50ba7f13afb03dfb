"""Verifying: everything that is wrong, at once, in words; and what is only a warning."""

import asyncio
import errno
import itertools
import threading
from pathlib import Path

import numpy as np
import pytest

from shardproof import (
    FindingKind,
    MultiShardSaver,
    ShardFileVerifier,
    VerificationResult,
    latest_checkpoint,
)
from shardproof._base import digest, fanout
from shardproof.checkpoint import CheckpointStorage, FsspecStorage, LocalStorage
from tests.helpers.checkpoint_files import shard_path


def verify(prefix, level="valid") -> VerificationResult:
    return ShardFileVerifier().verify_checkpoint(prefix, level=level)


def test_everything_that_is_wrong_is_in_one_report(make_checkpoint) -> None:
    prefix = make_checkpoint(
        world_size=9,
        missing_ranks=[0],
        empty_ranks=[1],
        truncated_ranks=[2],
        flipped_ranks=[3],
        wrong_magic_ranks=[4],
        directory_ranks=[5],
        stale_ranks=[6],
        swapped_ranks=[7, 8],
    )
    result = verify(prefix)
    kinds = {Path(finding.path).name: finding.kind for finding in result.findings}
    expected = ["MISSING", "EMPTY", "SIZE", "DIGEST", "STRUCTURE", "NOT_REGULAR", "STRUCTURE"]
    for rank, kind in enumerate(expected):
        assert kinds[shard_path(prefix, rank).name] is FindingKind[kind]
    assert shard_path(prefix, 7).name in kinds
    assert len(result.errors) == len(result.findings)
    assert result.errors[0] == (
        f"{shard_path(prefix, 0)}: missing: expected a regular file, found nothing"
    )
    assert not result.is_valid
    assert result.exit_code == 1


@pytest.mark.parametrize(("world_size", "each"), [(1, 4), (2, 2), (17, 1)])
def test_shards_that_are_proven_at_once_share_the_processors(
    make_checkpoint, monkeypatch, world_size: int, each: int
) -> None:
    asked = []
    real = digest.begin

    def begin(algorithm, size, *, threads=None):
        asked.append(threads)
        return real(algorithm, size)

    prefix = make_checkpoint(world_size=world_size)
    monkeypatch.setattr(digest, "begin", begin)
    monkeypatch.setattr(fanout, "available_cpus", lambda: 4)
    monkeypatch.setattr("shardproof.checkpoint.read._verifier._FEW", 0)  # also few small ones
    assert verify(prefix).is_valid
    assert asked == [each] * world_size


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_metadata_that_nobody_could_look_at_may_name_all_shards(
    make_checkpoint, make_shard_faults, number: int
) -> None:
    prefix = make_checkpoint(world_size=2)
    (prefix.parent / "model.metadata.json.pruned").write_bytes(b"x")
    make_shard_faults(prefix.parent).fail("open", number, match="*.metadata.json", times=None)
    (warning,) = verify(prefix).warnings
    assert "the checkpoint is being removed" in warning


def test_an_unfinished_step_is_a_warning(tmp_path) -> None:
    prefix = tmp_path / "model"
    for name in ("model", "model2"):
        MultiShardSaver().save_shard(tmp_path / name, 0, {"w": np.arange(3)})
    result = verify(prefix)
    assert not result.is_valid
    (warning,) = result.warnings
    assert warning.startswith(f"unfinished step '{prefix}': 1 shard file, last written ")


def test_the_same_in_coroutines(make_checkpoint) -> None:
    before = {*threading.enumerate()}
    whole, torn = make_checkpoint(world_size=3), make_checkpoint(world_size=3, flipped_ranks=[1])

    async def look() -> list[VerificationResult]:
        verifier = ShardFileVerifier()
        return await asyncio.gather(
            verifier.verify_checkpoint_async(whole),
            verifier.verify_checkpoint_async(torn),
            verifier.verify_checkpoint_async(torn, level="complete"),
        )

    assert asyncio.run(look()) == [verify(whole), verify(torn), verify(torn, "complete")]
    assert {*threading.enumerate()} <= before
    with pytest.raises(ValueError, match=r"ShardFileVerifier\.verify_checkpoint\(\): level"):
        asyncio.run(ShardFileVerifier().verify_checkpoint_async(whole, level="vaild"))


def test_a_look_that_is_wanted_no_more_ends_at_its_next_piece(make_checkpoint, monkeypatch) -> None:
    before = {*threading.enumerate()}
    prefix, began, go_on = make_checkpoint(world_size=3), threading.Event(), threading.Event()
    n_reads = itertools.count()

    class Slow(LocalStorage):
        def open(self, path: str):
            file = super().open(path)
            if path.endswith(".shard"):
                read = file.read_into

                def read_into(buffer, offset):
                    next(n_reads)
                    began.set()
                    go_on.wait(60)
                    return read(buffer, offset)

                file.read_into = read_into
            return file

    async def look() -> None:
        task = asyncio.ensure_future(ShardFileVerifier(Slow()).verify_checkpoint_async(prefix))
        await asyncio.to_thread(began.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(look())
    assert next(n_reads) < 2 * 3  # which all shards would take: header and data of each
    assert {*threading.enumerate()} <= before


def test_strays_are_warnings(make_checkpoint) -> None:
    prefix = make_checkpoint(world_size=2)
    for name in ("model_shard_2.shard", "model_shard_-1.shard", "model_shard_7.tensors.json"):
        (prefix.parent / name).write_bytes(b"x")
    (prefix.parent / "model2_shard_2.shard").write_bytes(b"x")
    (prefix.parent / "model.metadata.json.pruned").write_bytes(b"x")
    result = verify(prefix)
    assert result.is_valid
    assert [Path(text.split(": ")[0]).name for text in result.warnings] == [
        "model_shard_-1.shard",
        "model_shard_2.shard",
        "model_shard_7.tensors.json",
        "model.metadata.json.pruned",
    ]


def test_one_whose_shards_can_t_be_proven_is_passed_over(make_checkpoint, caplog) -> None:
    prefix = make_checkpoint(world_size=2, unchecked_ranks=[1])
    assert latest_checkpoint(prefix.parent) is None
    assert "no checksum is stated" in caplog.text
    assert latest_checkpoint(prefix.parent, level="complete") == str(prefix)


def test_what_has_the_methods_is_a_storage() -> None:
    assert isinstance(FsspecStorage.from_url("memory://"), CheckpointStorage)
    assert isinstance(LocalStorage(), CheckpointStorage)
    with pytest.raises(TypeError, match="storage"):
        ShardFileVerifier("/tmp")


def test_what_can_not_be_looked_at_of_an_unfinished_step_is_told(
    tmp_path, make_shard_faults
) -> None:
    prefix = tmp_path / "model"
    MultiShardSaver().save_shard(prefix, 0, {"w": np.arange(3)})
    make_shard_faults(tmp_path).fail("stat", errno.EIO, match="model_shard_0.shard")
    (warning,) = verify(prefix).warnings
    assert "it can't be checked: " in warning

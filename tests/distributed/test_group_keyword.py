"""``group=`` of what is not `distributed.validate`: one check, or one answer, for all ranks."""

import functools
import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import shardproof
from shardproof import distributed
from shardproof.checkpoint.read import _directories
from shardproof.errors import ManifestNotFoundError, RankError
from tests.helpers.ranks import PipeGroup, groups_of, on_ranks

LOADERS = [shardproof.OrderedDataLoader, shardproof.ShuffledDataLoader, shardproof.IndexedDataset]
SHARED = "node1", "node1", "node2"

listening = list[list[str]]()


@functools.cache
def listen() -> None:
    """Hear of each open from now on: an audit hook can't be removed."""

    def audit(event: str, args: tuple[Any, ...]) -> None:
        for names in listening if event == "open" else ():
            names.append(str(args[0]))

    sys.addaudithook(audit)


@pytest.fixture
def opens() -> Any:
    """The names of what this process opens meanwhile."""
    listen()
    listening.append([])
    yield listening[0]
    listening.clear()


@pytest.mark.parametrize("kind", LOADERS)
class TestLoaders:
    def test_ranks_share_one_check(self, kind: Any, make_shards_dir, opens) -> None:
        path = make_shards_dir(200)
        kind(path, layer="all")
        alone = len(opens)
        opens.clear()
        for loader in on_ranks(lambda group: kind(path, layer="all", group=group), *SHARED):
            assert isinstance(loader, kind)
        assert len([name for name in opens if "acts" in name]) == 200
        assert len(opens) <= 1.2 * alone

    def test_all_raise_what_one_of_them_finds(self, kind: Any, make_shards_dir) -> None:
        path = make_shards_dir(9, missing=[1], empty=[8])
        with pytest.raises(shardproof.ShardValidationError) as alone:
            kind(path, layer="all")
        found = on_ranks(lambda group: kind(path, layer="all", group=group), *SHARED)
        assert {type(each) for each in found} == {shardproof.ShardValidationError}
        assert {str(each) for each in found} == {str(alone.value)}

    def test_hosts_that_see_different_directories_check_their_own(
        self, kind: Any, make_shards_dir
    ) -> None:
        paths = [make_shards_dir(3), make_shards_dir(3, missing=[2])]
        call = lambda group: kind(paths[group.rank == 2], layer="all", group=group)  # noqa: E731
        found = on_ranks(call, *SHARED)
        assert {str(each) for each in found} == {str(found[0])}
        assert f"{paths[1]}/acts000002.bin on node2" in str(found[0])

    def test_a_rank_that_sees_nothing_ends_it_for_all(self, kind: Any, make_shards_dir) -> None:
        path = make_shards_dir(3)
        call = lambda g: kind(path / "x" if g.rank == 1 else path, layer="all", group=g)  # noqa: E731
        found = on_ranks(call, *SHARED)
        assert {type(each) for each in found} == {ManifestNotFoundError}
        assert all(str(each).startswith("rank 1 on node1: ") for each in found)


@pytest.mark.parametrize("kind", LOADERS[:2])
def test_rank_and_size_are_those_of_the_group_unless_given(kind: Any, make_shards_dir) -> None:
    path, columns = make_shards_dir(8), ("example_idx", "layer", "token_idx")

    def rows(group: PipeGroup | None, **given: int) -> list[tuple[int, ...]]:
        with kind(path, layer="all", batch_size=2, group=group, **given) as loader:
            return [
                each
                for batch in loader
                for each in zip(*(batch[name].tolist() for name in columns), strict=True)
            ]

    dealt, everything = on_ranks(rows, *SHARED), sorted(rows(None))
    assert sorted(itertools.chain(*dealt)) == everything
    assert len({*everything}) == len(everything)
    given = on_ranks(lambda group: rows(group, rank=0, world_size=1), *SHARED)
    assert [sorted(each) for each in given] == [everything] * 3


def test_a_wrong_argument_is_refused_before_any_word(make_shards_dir) -> None:
    [group] = groups_of(["here"])
    with pytest.raises(ValueError, match="batch_size"):
        shardproof.OrderedDataLoader(make_shards_dir(3), layer="all", batch_size=0, group=group)
    with pytest.raises(TypeError, match="group: expected a process group of torch"):
        shardproof.OrderedDataLoader(make_shards_dir(3), layer="all", group=3)


def test_an_executor_is_refused(make_shards_dir) -> None:
    [group] = groups_of(["here"])
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="the ranks themselves"):
        distributed.validate(make_shards_dir(3), group=group, executor=pool)


def test_without_a_process_group_the_error_says_what_to_do(make_shards_dir) -> None:
    with pytest.raises(ValueError, match=r"init_process_group\(\) first, or pass MPI.COMM_WORLD"):
        distributed.validate(make_shards_dir(3))


class TestOneAnswer:
    @pytest.fixture
    def steps(self, tmp_path):
        for step in (10, 20):
            prefix = tmp_path / f"step_{step}" / "model"
            prefix.parent.mkdir()
            shardproof.MultiShardSaver().save_shard(prefix, 0, {"bias": np.arange(step)})
            shardproof.MultiShardSaver().save_metadata(prefix, world_size=1, step=step)
        return tmp_path

    def test_of_the_latest_checkpoint(self, steps, monkeypatch) -> None:
        """The other ranks may see an older listing: they get what rank 0 has found."""
        looks, real = [], _directories.prefixes_in

        def prefixes_in(*where: Any) -> Any:
            looks.append(where)
            return real(*where)

        monkeypatch.setattr(_directories, "prefixes_in", prefixes_in)
        call = lambda group: shardproof.latest_checkpoint(steps, group=group)  # noqa: E731
        assert on_ranks(call, *SHARED) == [f"{steps}/step_20/model"] * 3
        assert len(looks) == 1

    @pytest.mark.parametrize(
        "call",
        [
            lambda path, group: shardproof.latest_checkpoint(path, group=group),
            lambda path, group: shardproof.stage(path, group=group),
        ],
    )
    @pytest.mark.parametrize("other", ["val", "s3://key:word@bucket/val"])
    def test_ranks_that_ask_about_different_paths_are_named(
        self, make_receipts_dir, call, other: str
    ) -> None:
        """Else each got the answer that is about the first one's."""
        one = make_receipts_dir(2)
        paths = [one, other if "://" in other else one.parent]
        found = on_ranks(lambda group: call(paths[group.rank % 2], group), *SHARED)
        assert {type(each) for each in found} == {RankError}
        [text] = {str(each) for each in found}
        assert f"('{paths[0]}', " in text
        assert "word" not in text

    def test_ranks_that_ask_about_different_plans_are_named(self, make_receipts_dir) -> None:
        stores = [shardproof.ReceiptStore(make_receipts_dir(n)) for n in (2, 3)]
        found = on_ranks(lambda group: stores[group.rank].pending(group=group), "a", "b")
        assert {type(each) for each in found} == {RankError}

    def test_its_path_may_be_no_text(self, tmp_path) -> None:
        prefix = os.fsencode(tmp_path) + b"/\xff/model"
        os.mkdir(os.path.dirname(prefix))
        shardproof.MultiShardSaver().save_shard(os.fsdecode(prefix), 0, {"bias": np.arange(3)})
        shardproof.MultiShardSaver().save_metadata(os.fsdecode(prefix), world_size=1, step=1)
        call = lambda group: shardproof.latest_checkpoint(  # noqa: E731
            os.fsdecode(os.path.dirname(prefix)), group=group
        )
        assert on_ranks(call, *SHARED) == [os.fsdecode(prefix)] * 3

    def test_there_may_be_none(self, tmp_path) -> None:
        call = lambda group: shardproof.latest_checkpoint(tmp_path, group=group)  # noqa: E731
        assert on_ranks(call, *SHARED) == [None] * 3

    def test_its_error_is_raised_by_all(self, tmp_path, monkeypatch) -> None:
        def prefixes_in(*_: object) -> None:
            raise PermissionError(13, "Permission denied", "/x")

        monkeypatch.setattr("shardproof.checkpoint.read._directories.prefixes_in", prefixes_in)
        call = lambda group: shardproof.latest_checkpoint(tmp_path, group=group)  # noqa: E731
        found = on_ranks(call, *SHARED)
        assert {type(each) for each in found} == {PermissionError}
        text = "[Errno 13] rank 0 on node1: Permission denied"
        assert all(str(each).startswith(text) for each in found)

    def test_of_pending_shards(self, make_receipts_dir) -> None:
        plan_dir = make_receipts_dir(5, missing=[2])
        expected = shardproof.ReceiptStore(plan_dir).pending()

        def call(group: PipeGroup) -> list[int]:
            return shardproof.ReceiptStore(plan_dir).pending(group=group)

        assert on_ranks(call, *SHARED) == [expected] * 3
        assert expected

    def test_of_each_host_where_the_copy_is(self, make_shards_dir, tmp_path, monkeypatch) -> None:
        path, copying = make_shards_dir(3), []
        real = shardproof.staging._staged

        def staged(source: Any, to: Any, *more: Any) -> Any:
            copying.append(os.fspath(to))
            return real(source, to, *more)

        monkeypatch.setattr(shardproof.staging, "_staged", staged)
        for host in SHARED:
            (tmp_path / host).mkdir(exist_ok=True)
        seen: list[tuple[int, int]] = []

        def call(group: PipeGroup) -> Any:
            progress = (lambda *told: seen.append(told)) if group.rank == 0 else False
            return shardproof.stage(path, tmp_path / group.host, group=group, progress=progress)

        found = on_ranks(call, *SHARED)
        assert sorted(copying) == [f"{tmp_path}/node1", f"{tmp_path}/node2"]
        assert found[0] == found[1]
        assert [each.parent.parent.name for each in found] == [*SHARED]
        assert shardproof.validate(found[2], level="valid")
        assert seen[-1][0] == seen[-1][1]

    def test_an_error_has_its_report(self, make_shards_dir, tmp_path) -> None:
        path = make_shards_dir(3, missing=[1])
        found = on_ranks(lambda group: shardproof.stage(path, tmp_path, group=group), *SHARED)
        assert {type(each) for each in found} == {shardproof.ShardValidationError}
        assert {each.report.broken().ranges for each in found} == {"1"}
        assert {each.exit_code for each in found} == {1}
        assert len({str(each) for each in found}) == 1

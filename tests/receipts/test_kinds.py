"""Which outputs a shard owes: its plan says so, or its receipt, or Nemotron's law."""

import json
import logging

import pytest

import shardproof
from shardproof import ManifestError, ReceiptError, ReceiptStore, receipts
from tests.helpers.planning import complete, new_store, receipt_path, rewrite_receipt, source

LEVELS = ("present", "complete", "valid")


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    """One shard of three is done; its plan doesn't say what it owes."""
    store = new_store(tmp_path)
    complete(store, 0)
    return store


def open_plan(base, **keywords) -> ReceiptStore:
    plan = receipts.make_plan("corpus", [source("a")], n_shards=2, **keywords)
    return receipts.open_run(base, datasets=["corpus"]).store(plan)


def rewrite_plan(store: ReceiptStore, **changes) -> ReceiptStore:
    path = store.path / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
    return ReceiptStore(store.path)


def name_only(store: ReceiptStore, kind: str) -> None:
    """Take the other output, and all word of it."""
    said = json.loads(receipt_path(store, 0).read_bytes())
    (gone,) = set(said["files"]) - {kind}
    (store.path / said["files"].pop(gone)["path"]).unlink()
    rewrite_receipt(store, 0, files=said["files"], kinds=None)


def is_done(store: ReceiptStore) -> bool:
    """Whether the first shard is, which planning, the stage and the validator say alike."""
    answers = {0 not in store.pending(level=level) for level in LEVELS}
    answers |= {store.is_completed(0, level=level) for level in LEVELS}
    answers |= {store.verdict(0).completed, shardproof.validate(store.path).ok}
    (answer,) = answers
    return answer


@pytest.mark.parametrize("kind", ["bin", "idx"])
class TestOneOfTwo:
    """A reader of the one needs the other."""

    def test_where_the_receipt_said_what_it_owes(self, store, kind) -> None:
        said = json.loads(receipt_path(store, 0).read_bytes())
        rewrite_receipt(store, 0, files={kind: said["files"][kind]})
        assert not is_done(store)

    def test_where_nobody_says_what_is_owed(self, store, kind) -> None:
        name_only(store, kind)
        assert not is_done(store)
        (other,) = {"bin", "idx"} - {kind}
        text = f"expected outputs of kinds 'bin', 'idx', found no '{other}'"
        assert text in store.verdict(0).reason
        complete(store, 0)
        assert is_done(store)

    def test_where_the_plan_says_so(self, tmp_path, kind) -> None:
        store = open_plan(tmp_path, kinds=["bin", "idx"])
        complete(store, 0)
        assert is_done(store)
        name_only(store, kind)
        assert not is_done(store)

    def test_two_names_of_one_file(self, store, kind) -> None:
        files = json.loads(receipt_path(store, 0).read_bytes())["files"]
        rewrite_receipt(store, 0, files={"bin": files[kind], "idx": files[kind]})
        assert store.pending() == [0, 1, 2]
        assert "it is listed twice" in store.verdict(0).reason

    def test_of_an_empty_shard(self, store, kind) -> None:
        name_only(store, kind)
        empty = {kind: {"path": f"none.{kind}", "bytes": 0, "checksum": "xxh64:empty"}}
        rewrite_receipt(store, 0, files=empty, stats={"num_sequences": 0})
        assert is_done(store)


def test_a_plan_that_owes_one_wants_it_even_where_others_are(tmp_path) -> None:
    store = open_plan(tmp_path, kinds=["parquet"])
    with pytest.raises(ReceiptError, match=r"kinds 'parquet', found no 'parquet'$"):
        complete(store, 0)
    assert store.receipt(0).status == "failed"
    assert not (store.path / "shard_000000.bin").exists()
    with store.claim(0) as work:
        for name in ("x.parquet", "y.log"):
            work.output_path(name).write_bytes(b"x")
    assert is_done(store)
    assert store.receipt(0).kinds is None


def test_what_one_shard_wrote_it_owes(store) -> None:
    """A job that writes one output a shard needs to say nothing."""
    with store.claim(1) as work:
        work.output_path("shard_000001.bin").write_bytes(b"x")
    assert store.pending(level="valid") == [2]
    assert store.receipt(1).kinds == ("bin",)


@pytest.mark.parametrize("kinds", ["bin", [""], ["a\nb"], ["\ud800"], [3]])
def test_what_is_no_list_of_kinds(kinds) -> None:
    with pytest.raises((TypeError, ReceiptError), match="kinds"):
        receipts.make_plan("corpus", [source("a")], n_shards=2, kinds=kinds)


@pytest.mark.parametrize("kinds", ["bin", [3], {"bin": 1}, None])
def test_a_plan_whose_kinds_can_not_be_read(store, kinds) -> None:
    with pytest.raises(ManifestError, match=r"\$\.kinds"):
        rewrite_plan(store, kinds=kinds)


class TestRecorded:
    def test_in_the_plan_and_not_in_its_hash(self, tmp_path) -> None:
        store = open_plan(tmp_path, kinds=["idx", "bin", "bin"])
        assert receipts.Plan.load(store.path).kinds == ("bin", "idx")
        assert store.plan_hash == receipts.make_plan("corpus", [source("a")], n_shards=2).plan_hash

    def test_a_plan_that_is_there_takes_them_over(self, tmp_path, caplog) -> None:
        before = open_plan(tmp_path)
        complete(before, 0)
        name_only(before, "bin")
        assert before.pending() == [0, 1]
        with caplog.at_level(logging.WARNING, "shardproof.receipts"):
            store = open_plan(tmp_path, kinds=["bin"])
        assert store.pending() == [1]
        assert "owed what each receipt says; from now on each shard owes bin" in caplog.text
        plan = receipts.Plan.load(store.path)
        assert plan.created_at == before.plan.created_at
        assert plan.run_hash == store.path.parents[2].name

    def test_and_keeps_them_where_nobody_says(self, tmp_path, caplog) -> None:
        open_plan(tmp_path, kinds=["bin"])
        text = (open_plan(tmp_path).path / "plan.json").read_bytes()
        assert receipts.Plan.load(open_plan(tmp_path, kinds=["bin"]).path).kinds == ("bin",)
        assert (open_plan(tmp_path).path / "plan.json").read_bytes() == text
        assert caplog.messages == []


class TestVersions:
    @pytest.mark.parametrize("version", [99, 2, 0, -1])
    def test_a_receipt_of_another_is_not_believed(self, store, version) -> None:
        rewrite_receipt(store, 0, schema_version=version)
        assert not is_done(store)
        assert f"expected schema_version 1, found {version}" in store.verdict(0).reason

    @pytest.mark.parametrize("version", ["2.0", "99", "", "x"])
    def test_a_plan_of_another_is_not_read(self, store, version) -> None:
        with pytest.raises(ManifestError, match=r"version 1\.0, found"):
            rewrite_plan(store, version=version)
        with pytest.raises(ManifestError, match=r"version 1\.0, found"):
            receipts.Plan.load(store.path)


@pytest.mark.parametrize("extra", [5, "x", [1], {"a": 1}, True])
def test_an_unknown_field_named_extra_is_one_of_many(store, extra) -> None:
    rewrite_receipt(store, 0, extra=extra)
    assert is_done(store)
    assert store.receipt(0).extra == {"extra": extra}


def test_a_plan_owes_a_bounded_number_of_kinds(tmp_path) -> None:
    """Each receipt is looked at for each kind: what a plan can say would take the square."""
    store = open_plan(tmp_path, kinds=[f"k{i}" for i in range(1000)])
    with pytest.raises(ManifestError, match=r"expected at most 1000 kinds of outputs, found 1001"):
        rewrite_plan(store, kinds=[f"k{i}" for i in range(1001)])
    with pytest.raises(ReceiptError, match=r"kinds: expected at most 1000, found 1001"):
        open_plan(tmp_path, kinds=[f"k{i}" for i in range(1001)])

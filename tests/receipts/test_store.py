"""One definition of done: what is asked in two ways is answered in one."""

import errno
import json
import logging
import math
import os
import shutil
import stat
import threading

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import shardproof
from shardproof import ManifestError, ManifestNotFoundError, ReceiptError, ReceiptStore
from shardproof._base.work import Cancelled, apart
from shardproof.receipts import _plan_receipts, _verdict
from shardproof.testing import without_root_override
from tests.helpers.checkpoint_files import flip
from tests.helpers.drawing import examples
from tests.helpers.planning import complete, new_store, receipt_path, rewrite_receipt

LEVELS = ("present", "complete", "valid")


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    store = new_store(tmp_path)
    for index in range(3):
        complete(store, index)
    return store


def outputs(store: ReceiptStore, index: int = 1):
    return [store.path / f"shard_{index:06d}.{suffix}" for suffix in ("bin", "idx")]


def directory_instead(store) -> None:
    path = outputs(store)[0]
    path.unlink()
    path.mkdir()


def link_outside(store) -> None:
    path = outputs(store)[0]
    outside = store.path.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def twice(store) -> None:
    text = receipt_path(store, 1).read_text().rstrip()
    receipt_path(store, 1).write_text(text[:-1] + ', "run_hash": "x"}')


def escape(store) -> None:
    """To a file that is there, and of the recorded size."""
    (store.path.parent / "x").write_bytes(b"x")
    rewrite_receipt(store, 1, files={"bin": {"path": "../x", "bytes": 1, "checksum": "a:b"}})


def fifo_instead(store) -> None:
    receipt_path(store, 1).unlink()
    os.mkfifo(receipt_path(store, 1))


NOT_DONE = {
    "no receipt": (lambda s: receipt_path(s, 1).unlink(), "absent", "there is no receipt"),
    "missing bin": (lambda s: outputs(s)[0].unlink(), "completed", "found nothing"),
    "wrong plan": (lambda s: rewrite_receipt(s, 1, plan_hash="x"), "foreign", "of plan 'x', not"),
    "wrong shard": (lambda s: rewrite_receipt(s, 1, shard_index=2), "foreign", "that of shard 2"),
    "started": (lambda s: rewrite_receipt(s, 1, status="started"), "started", "not completed"),
    "failed": (
        lambda s: rewrite_receipt(s, 1, status="failed", error_type="E", error_message="m\nn"),
        "failed",
        "it failed: 'E: m'",
    ),
    "truncated": (lambda s: os.truncate(receipt_path(s, 1), 50), "damaged", "not JSON"),
    "empty receipt": (lambda s: os.truncate(receipt_path(s, 1), 0), "damaged", "not JSON"),
    "missing files": (lambda s: rewrite_receipt(s, 1, files=None), "damaged", "names no files"),
    "shorter": (lambda s: os.truncate(outputs(s)[0], 3), "completed", "found 3 bytes"),
    "longer": (lambda s: os.truncate(outputs(s)[0], 9), "completed", "found 9 bytes"),
    "a directory instead": (directory_instead, "completed", "found directory"),
    "a link that leads outside": (link_outside, "completed", "outside the root"),
    "a key twice": (twice, "damaged", "stands twice"),
    "a FIFO for a receipt": (fifo_instead, "damaged", "found a FIFO"),
    "a name that is refused": (escape, "damaged", "is refused"),
}


@pytest.mark.parametrize("case", NOT_DONE)
def test_a_shard_that_is_not_done(store, case: str) -> None:
    """Planning, the stage and the validator agree, and say why."""
    harm, status, reason = NOT_DONE[case]
    harm(store)
    assert store.pending() == [1]
    assert [store.is_completed(index) for index in range(3)] == [True, False, True]
    verdict = store.verdict(1)
    assert (verdict.completed, verdict.status) == (False, status)
    assert reason in verdict.reason
    assert [found.index for found in store.verdicts(pending=True)] == [1]
    with store.claim(1) as work:  # so it can be done again
        work.mark_empty()
    assert [w.index for w in store.claim_pending()] == []


def test_a_whole_shard_is_not_looked_at_twice(store, monkeypatch) -> None:
    """The quick look must be right; but if it passed over nothing, no other test would see it."""
    monkeypatch.setattr(_verdict, "verdict", None)
    assert store.pending() == []


@pytest.mark.parametrize("stats", [{"num_sequences": 0}, {"num_records": 0}])
def test_an_empty_shard_is_done(store, stats) -> None:
    files = {"bin": {"path": "none.bin", "bytes": 0, "checksum": "xxh64:empty"}}
    rewrite_receipt(store, 1, stats=stats, files=files)
    for path in outputs(store):
        path.unlink()
    for level in LEVELS:
        assert store.pending(level=level) == []


def test_a_flipped_bit_shows_at_valid(store) -> None:
    flip(outputs(store)[1])
    assert store.pending() == store.pending(level="present") == []
    assert store.pending(level="valid") == [1]
    assert "found sha256:" in store.verdict(1, level="valid").reason


def test_nemotrons_digests_are_proven(store) -> None:
    files = json.loads(receipt_path(store, 1).read_bytes())["files"]
    for file in files.values():
        file["checksum"] = "xxh64:" + xxhash.xxh64(b"tokens").hexdigest()
    rewrite_receipt(store, 1, files=files)
    assert store.pending(level="valid") == []
    flip(outputs(store)[0])
    assert store.pending(level="valid") == [1]


def test_an_unreadable_output_is_not_there(make_shards_dir, store) -> None:
    make_shards_dir(1, unreadable_shards=[0])  # gives root's override up until the test ends
    outputs(store)[0].chmod(0)
    try:
        assert store.pending() == [1]
        assert "Permission denied" in store.verdict(1).reason
    finally:
        outputs(store)[0].chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_links_that_stay_inside_are_followed(store) -> None:
    path = outputs(store)[0]
    path.rename(store.path / "elsewhere.bin")
    path.symlink_to("elsewhere.bin")
    assert store.pending() == []


@pytest.mark.parametrize("workers", [0, -1])
def test_so_few_threads_look_at_nothing(store, workers: int) -> None:
    for look in (store.pending, store.verdicts):
        with pytest.raises(ValueError, match=f"workers: expected 1 or more, found {workers}"):
            look(workers=workers)


def test_no_directory_of_receipts(tmp_path) -> None:
    store = new_store(tmp_path)
    (store.path / "receipts").rmdir()
    assert store.pending() == [0, 1, 2]
    complete(store, 0)
    assert store.pending() == [1, 2]


@pytest.mark.parametrize("kind", ["symbolic link", "regular file"])
def test_another_thing_in_its_place(store, kind: str) -> None:
    """A link could lead anywhere."""
    (store.path / "receipts").rename(store.path.parent / "elsewhere")
    looks = [store.pending, lambda: store.receipt(0)]
    if kind == "symbolic link":
        (store.path / "receipts").symlink_to(store.path.parent / "elsewhere")
        looks += [lambda: shardproof.validate(store.path)]
    else:
        (store.path / "receipts").touch()
    for look in looks:
        with pytest.raises(ManifestError, match=f"a directory of receipts, found a {kind}"):
            look()
    assert f"expected a directory of receipts, found a {kind}" in store.verdict(0).reason


def test_a_link_that_comes_after_a_first_look(store, monkeypatch) -> None:
    rewrite_receipt(store, 1, status="failed", error_type="E", error_message="SECRET")
    shutil.copytree(store.path / "receipts", store.path.parent / "elsewhere")
    receipt_path(store, 1).unlink()
    complete(store, 1)
    real = os.stat

    def stat_then_exchange(path, *args, **keywords):
        status = real(path, *args, **keywords)
        if str(path).endswith("receipts"):
            (store.path / "receipts").rename(store.path.parent / "kept")
            (store.path / "receipts").symlink_to(store.path.parent / "elsewhere")
            monkeypatch.setattr(os, "stat", real)
        return status

    monkeypatch.setattr(os, "stat", stat_then_exchange)
    verdict = store.verdict(1)
    assert not verdict.completed
    assert "SECRET" not in verdict.reason
    assert "outside the root" in verdict.reason


class TestCouldNotLook:
    """Neither done nor not: an error."""

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    @pytest.mark.parametrize("call", ["open", "read"])
    def test_at_a_receipt(self, store, make_shard_faults, call, number) -> None:
        make_shard_faults(store.path / "receipts").fail(call, number)
        for ask in (store.pending, lambda: store.is_completed(1), lambda: store.verdict(1)):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is looked at
                ask()
            assert caught.value.errno == number

    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    def test_at_an_output(self, store, make_shard_faults, number) -> None:
        make_shard_faults(store.path).fail("stat", number, match="shard_000001.bin")
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is looked at
            store.pending()
        assert caught.value.errno == number
        assert str(caught.value.filename).endswith("shard_000001.bin")


class TestLog:
    def test_it_says_why_and_what_is_skipped(self, store, caplog) -> None:
        outputs(store)[0].unlink()
        with caplog.at_level(logging.INFO, "shardproof.receipts"):
            store.pending()
        why, what = caplog.messages
        assert why.startswith("Shard 1 must be made again: completed, but expected a regular file")
        assert what == "Skipping 2 of 3 shards: completed, with every output as recorded: 0,2"

    def test_it_is_bounded(self, tmp_path, caplog) -> None:
        store = new_store(tmp_path, 30)
        for index in range(30):
            receipt_path(store, index).write_text("{")
        assert len(store.pending()) == 30
        assert len(caplog.messages) == 21
        assert caplog.messages[-1] == "And 10 more shards must be made again"


def test_of_a_shard_without_a_receipt_none_is_returned(store) -> None:
    receipt_path(store, 1).unlink()
    with pytest.raises(ReceiptError, match=f"shard 1 of '{store.path}': there is no receipt") as e:
        store.receipt(1)
    assert (e.value.path, e.value.index) == (str(receipt_path(store, 1)), 1)
    assert not isinstance(e.value, FileNotFoundError)


@pytest.mark.parametrize("level", LEVELS)
def test_the_verdicts_on_all_are_those_on_each(tmp_path, level) -> None:
    store = new_store(tmp_path, 5)
    for index in (0, 1, 2):
        complete(store, index)
    (store.path / "shard_000001.bin").unlink()
    receipt_path(store, 2).write_text("{")
    with pytest.raises(ZeroDivisionError), store.claim(3):
        raise ZeroDivisionError
    each = [store.verdict(index, level=level) for index in range(5)]
    assert store.verdicts(level=level) == each
    assert store.verdicts(pending=True, level=level) == [one for one in each if not one]
    assert [one.status for one in each] == [
        "completed", "completed", "damaged", "failed", "absent",
    ]  # fmt: skip


class TestArguments:
    @pytest.mark.parametrize("index", [-1, 3, 10**9])
    def test_no_such_shard(self, store, index) -> None:
        for ask in (store.is_completed, store.verdict, store.claim, store.receipt):
            with pytest.raises(IndexError, match="expected 0 to 2"):
                ask(index)

    @pytest.mark.parametrize(
        "times",
        [
            *((0.0, 1.0), (-1.0, 1.0), (1.0, 2.0), (1.0, 0.0), (math.nan, 300.0)),
            *((30.0, math.inf), (30.0, math.nan), (1.0, 86_401.0)),
        ],
    )
    def test_silence_must_outlast_some_beats_and_end(self, store, tmp_path, times) -> None:
        said = dict(zip(("heartbeat", "stale_after"), times, strict=True))
        with pytest.raises(ValueError, match=r"3 \* heartbeat <= stale_after <= 86400, found"):
            ReceiptStore(store.path, **said)
        with pytest.raises(ValueError, match="stale_after <= 86400, found"):
            new_store(tmp_path / "new", **said)
        assert list((tmp_path / "new").rglob("plan.json")) == []

    def test_no_plan(self, tmp_path) -> None:
        with pytest.raises(ManifestNotFoundError):
            ReceiptStore(tmp_path)
        (tmp_path / "plan.json").write_text('{"plan_hash": "x", "num_shards": 0}')
        with pytest.raises(ManifestError, match="expected 1 to 1000000 shards, found 0"):
            ReceiptStore(tmp_path)


@pytest.fixture(scope="module", params=["bin", "jsonl"])
def one_shard(tmp_path_factory, request) -> ReceiptStore:
    store = new_store(tmp_path_factory.mktemp("quick"), 1)
    if request.param == "bin":
        complete(store, 0)
    else:  # whose receipt has a field more
        with store.claim(0) as work:
            work.output_path("shard_000000.jsonl").write_bytes(b"{}")
    return store


class TestQuickLook:
    """It passes over a shard only where the closer look calls it done."""

    @pytest.mark.slow
    @examples(300)
    @given(st.data())
    def test_it_agrees(self, one_shard, data: st.DataObject) -> None:
        store = one_shard
        path = receipt_path(store, 0)
        whole = path.read_bytes()
        text = bytearray(whole.rstrip())
        for _ in range(data.draw(st.integers(1, 2))):
            start = data.draw(st.integers(0, len(text)))
            end = data.draw(st.integers(start, min(len(text), start + 30)))
            part = data.draw(
                st.binary(max_size=3)
                | st.sampled_from(
                    [b'"', b'":', b',"status":"completed"', b"\\u0022", b"null", b"{}"]
                )
                | st.just(bytes(text[data.draw(st.integers(0, len(text))) :][:40]))
            )
            text[start:end] = part
        path.write_bytes(text)
        try:
            quick = 0 not in left_by_the_quick_look(store)
            assert not quick or store.verdict(0).completed
        finally:
            path.write_bytes(whole)

    @given(
        st.dictionaries(
            st.text(max_size=5),
            st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
        )
    )
    def test_it_takes_any_stats(self, one_shard, stats) -> None:
        store = one_shard
        rewrite_receipt(store, 0, stats=stats)
        text = receipt_path(store, 0).read_text()
        if "\\" not in text and len(text) < 4096:
            assert left_by_the_quick_look(store) == []
        assert store.pending() == []


@pytest.mark.parametrize(
    ("files", "is_left"),
    [
        ({"x": "shard_000000.x", "y": "b.bin"}, False),
        ({"x": "a.bin", "y": "A.bin"}, True),
        ({"x": "shard_000000.x", "X": "shard_000000.X"}, True),
        ({"x": "../a.bin"}, True),
        ({"../x": "shard_000000.../x"}, True),
        ({"/x": "shard_000000./x"}, True),
        ({"x": "shard_000000.bin"}, True),
    ],
)
def test_the_quick_look_believes_harmless_names_only(store, files, is_left) -> None:
    """Also where outputs have the name of their shard, which are not looked at one by one."""
    said = {}
    for folder in ("shard_000000.", "shard_000000..."):
        (store.path / folder).mkdir()
    for kind, name in ({"bin": "shard_000000.bin", "idx": "shard_000000.idx"} | files).items():
        (store.path / name).write_bytes(b"x")
        said[kind] = {"path": name, "bytes": 1, "checksum": "xxh64:unknown"}
    rewrite_receipt(store, 0, files=said)
    assert left_by_the_quick_look(store) == [0] * is_left


def left_by_the_quick_look(store: ReceiptStore) -> list[int]:
    root_fd = os.open(store.path, os.O_RDONLY)
    receipts_fd = os.open(store.path / "receipts", os.O_RDONLY)
    try:
        return _verdict.not_plainly_done(store._header, root_fd, receipts_fd, [0], [])
    finally:
        os.close(root_fd)
        os.close(receipts_fd)


class TestOneOutputOfTwo:
    """Two receipts that name one output: one shard wrote over the other's, and neither is done."""

    @pytest.fixture(params=[("x.bin", "x.bin"), ("d/x.bin", "d/x.bin"), ("x.bin", "X.bin")])
    def twice(self, request, tmp_path) -> ReceiptStore:
        store = new_store(tmp_path, 4)
        for index, name in enumerate([*request.param, "y.bin"]):
            self.make(store, index, name)
        return store

    @staticmethod
    def make(store: ReceiptStore, index: int, name: str) -> None:
        with store.claim(index) as work:
            work.output_path(name, kind="data").write_bytes(b"1234")

    @pytest.mark.parametrize("level", ["present", "complete", "valid"])
    def test_neither_is_done(self, twice, level) -> None:
        for store in (twice, ReceiptStore(twice.path)):
            assert store.pending(level=level) == [0, 1, 3]
            done = [index for index in range(4) if store.is_completed(index, level=level)]
            assert done == [2]
            first, second = store.verdict(0, level=level), store.verdict(1, level=level)
            assert not first
            assert "is that of shard 1 too, by its receipt" in first.reason
            assert "is that of shard 0 too, by its receipt" in second.reason

    def test_both_are_made_again(self, twice) -> None:
        """The second too, though by then no other receipt names its output: it was written over."""
        store = ReceiptStore(twice.path)
        made = []
        for work in store.claim_pending():
            with work:
                work.output_path(f"{work.index}.bin", kind="data").write_bytes(b"1234")
            made.append(work.index)
        assert made == [0, 1, 3]
        assert store.pending() == ReceiptStore(twice.path).pending() == []

    def test_one_that_comes_later(self, twice) -> None:
        store = ReceiptStore(twice.path)
        assert store.is_completed(2)
        self.make(ReceiptStore(twice.path), 3, "y.bin")
        assert not store.is_completed(3)
        assert not store.is_completed(2)

    def test_receipts_are_not_all_read_for_each_shard(self, twice, monkeypatch) -> None:
        looks, real = [], _plan_receipts.usual_files

        def usual_files(*args, **keywords):
            looks.append(args)
            return real(*args, **keywords)

        monkeypatch.setattr(_plan_receipts, "usual_files", usual_files)
        store = ReceiptStore(twice.path)
        assert [store.is_completed(index) for index in (2, 2, 2)] == [True] * 3
        assert len(looks) == 1

    def test_one_that_was_made_again_can_be_written_over_again(self, twice) -> None:
        store = ReceiptStore(twice.path)
        assert not store.is_completed(0)
        self.make(ReceiptStore(twice.path), 0, "z.bin")
        assert store.is_completed(0)
        self.make(ReceiptStore(twice.path), 3, "z.bin")
        assert not store.is_completed(3)
        assert not store.is_completed(0)
        assert "is that of shard 3 too" in store.verdict(0).reason

    @pytest.mark.parametrize("n", [1, 2])
    def test_an_interrupt_ends_it_at_the_next_receipt(self, twice, monkeypatch, n) -> None:
        real, read = _plan_receipts.judge_receipt, []

        def work(stop: threading.Event) -> None:
            def judge_receipt(header, index: int):
                read.append(index)
                if len(read) == n:
                    stop.set()
                return real(header, index)

            monkeypatch.setattr(_plan_receipts, "judge_receipt", judge_receipt)
            ReceiptStore(twice.path).verdicts(pending=True)

        with pytest.raises(Cancelled):
            apart(work)
        assert len(read) == n

    def test_what_an_empty_shard_does_not_owe(self, tmp_path) -> None:
        store = new_store(tmp_path, 2)
        for index in range(2):
            with store.claim(index) as work:
                work.output_path("x.bin", kind="data").write_bytes(b"")
                work.stats["num_sequences"] = 0
        assert store.pending() == []


def test_one_that_may_not_be_read_is_not_pending(store) -> None:
    path = receipt_path(store, 0)
    path.chmod(0)
    with without_root_override():
        for look in (store.pending, lambda: store.is_completed(0), lambda: store.claim(0)):
            with pytest.raises(PermissionError) as caught:
                look()
            assert caught.value.filename == str(path)
    path.chmod(0o644)

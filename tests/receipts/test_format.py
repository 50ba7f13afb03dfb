"""A plan directory is a shards directory: validated, collected, reported like any other."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given

import shardproof
from shardproof import ManifestError, ReceiptStore, formats, testing
from shardproof.formats import signs
from shardproof.receipts import _directories, _plan_receipts
from shardproof.testing.contracts import FormatContract
from shardproof.testing.faults import FileSystemFaults
from shardproof.testing.strategies import hostile_names, twin_names
from tests.helpers.planning import complete, new_store, receipt_path, rewrite_receipt


class TestReceipts(FormatContract):
    manifest_name = "plan.json"

    @pytest.fixture
    def form(self):
        return formats.get("receipts")

    def write_dir(self, value, base: Path) -> Path:
        """Each shard of a layout as the output of a shard of a plan."""
        store = new_store(base, max(1, value.n_shards))
        for index, name in enumerate(value.shard_names):
            with store.claim(index) as work:
                work.output_path(name).write_bytes(value.read_bytes(name))
        return store.path

    def test_hostile_names_are_refused(self, form, root: Path) -> None:
        """They stand in receipts: each such receipt is a finding, and promises nothing."""

        @given(hostile_names())
        def each_is_damage(name: str) -> None:
            name_output(root, 0, name)
            manifest = form.read_manifest(str(root))
            assert [part.name for part in manifest.damaged] == ["receipts/shard_000000.json"]
            assert name not in [file.name for file in manifest.files]

        each_is_damage()

    def test_twins_are_refused(self, form, root: Path) -> None:
        @given(twin_names())
        def each_is_refused(names: tuple[str, str]) -> None:
            for index, name in enumerate(names):
                name_output(root, index, name)
            with pytest.raises(ManifestError, match="names that are refused"):
                form.read_manifest(str(root))

        each_is_refused()


def name_output(root: Path, index: int, name: str) -> None:
    path = root / "receipts" / f"shard_{index:06d}.json"
    receipt = json.loads(path.read_bytes())
    receipt["files"]["bin"]["path"] = name
    path.write_text(json.dumps(receipt))


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    store = new_store(tmp_path)
    complete(store, 0)
    complete(store, 2)
    return store


def found(store: ReceiptStore, level: str = "present") -> list[tuple[str, str]]:
    findings = shardproof.validate(store.path, level=level).findings
    return [(f.kind.value, f.path.relative_to(store.path).as_posix()) for f in findings]


class TestPromise:
    @pytest.mark.parametrize("status", ["started", "failed"])
    def test_what_is_not_completed_promises_nothing(self, store, status) -> None:
        rewrite_receipt(store, 0, status=status)
        (store.path / "shard_000000.bin").unlink()
        assert shardproof.validate(store.path).n_files == 2
        assert found(store) == []

    def test_outputs_that_are_not_as_recorded(self, store) -> None:
        (store.path / "shard_000000.bin").unlink()
        os.truncate(store.path / "shard_000000.idx", 1)
        (store.path / "shard_000002.bin").write_bytes(b"nekots")
        assert found(store) == [("missing", "shard_000000.bin")]
        assert found(store, "complete") == [*found(store), ("size", "shard_000000.idx")]
        assert found(store, "valid")[2:] == [("digest", "shard_000002.bin")]

    @pytest.mark.parametrize("checksum", ["xxh64:abcd", "sha256:" + "z" * 64, "md5:"])
    def test_a_checksum_that_can_be_none_is_not_none_stated(self, store, checksum: str) -> None:
        files = json.loads(receipt_path(store, 0).read_bytes())["files"]
        files["bin"]["checksum"] = checksum
        rewrite_receipt(store, 0, files=files)
        for level in ("present", "complete", "valid"):
            [finding] = shardproof.validate(store.path, level=level).findings
            assert finding.path == receipt_path(store, 0)
            assert "hexadecimal digits, found" in finding.found

    def test_a_placeholder_is_not_proven(self, store) -> None:
        files = json.loads(receipt_path(store, 0).read_bytes())["files"]
        files["bin"]["checksum"] = "xxh64:unknown"
        rewrite_receipt(store, 0, files=files)
        report = shardproof.validate(store.path, level="valid")
        assert report.ok
        assert report.unproven == (store.path / "shard_000000.bin",)
        assert "3 proven, 1 without a digest" in str(report)


class TestDamagedReceipts:
    """Reported at every level, and the others are looked at all the same."""

    @pytest.mark.parametrize("level", ["present", "complete", "valid"])
    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"plan_hash": "x"}, "its receipt is of plan 'x'"),
            ({"shard_index": 1}, "its receipt is that of shard 1"),
            ({"files": None}, "names no files"),
            ({"files": {"bin": {"path": "../x", "bytes": 1}}}, "is refused"),
            ({"status": "done"}, "invalid enum value"),
        ],
    )
    def test_each(self, store, changes, text, level) -> None:
        rewrite_receipt(store, 0, **changes)
        (store.path / "shard_000002.idx").unlink()
        assert found(store, level) == [
            ("missing", "shard_000002.idx"),
            ("structure", "receipts/shard_000000.json"),
        ]
        assert text in shardproof.validate(store.path, level=level).findings[1].found

    def test_of_a_shard_that_the_plan_does_not_have(self, store) -> None:
        receipt_path(store, 3).write_bytes(receipt_path(store, 0).read_bytes())
        assert found(store) == [("structure", "receipts/shard_000003.json")]


def test_a_receipt_that_is_gone_when_it_is_read(store, monkeypatch) -> None:
    """As where a writer removes it before it moves the new one in."""
    real = _plan_receipts.usual_files

    def usual_files(header, receipts_fd, indices):
        receipt_path(store, indices[0]).unlink()
        return real(header, receipts_fd, indices)

    monkeypatch.setattr(_plan_receipts, "usual_files", usual_files)
    with pytest.raises(shardproof.ManifestError, match="no shard is completed"):
        found(store)
    assert not receipt_path(store, 0).exists()


def test_two_shards_that_name_one_output_are_refused(store) -> None:
    """One of them wrote over the other's."""
    files = json.loads(receipt_path(store, 0).read_bytes())["files"]
    rewrite_receipt(store, 2, files=files)
    with pytest.raises(ManifestError, match=r"'shard_000000\.bin' .*listed twice"):
        shardproof.validate(store.path)


def test_its_names_are_those_of_receipts() -> None:
    """Repeated, so that a look at other directories imports nothing of receipts."""
    assert (signs.RECEIPTS.manifest_file, signs.RECEIPTS_FOLDER) == (
        _directories.PLAN_FILE,
        _directories.RECEIPTS,
    )


class TestClaims:
    def test_a_plan_without_receipts_is_not_ours(self, tmp_path) -> None:
        (tmp_path / "plan.json").write_text("{}")
        assert not formats.get("receipts").recognizes(str(tmp_path))

    def test_receipts_without_a_plan_are(self, store) -> None:
        (store.path / "plan.json").unlink()
        assert formats.get("receipts").recognizes(str(store.path))
        with pytest.raises(ManifestError, match=r"plan\.json': there is no such file"):
            shardproof.validate(store.path)


def test_it_is_met_in_the_test_tree(pytester: pytest.Pytester) -> None:
    complete(new_store(pytester.path / "data"), 0)
    (pytester.path / "other").mkdir()
    (pytester.path / "other" / "plan.json").write_text("{}")  # a plan of something else
    result = pytester.runpytest("--validate-shards")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_receipt_that_may_not_be_read_is_not_called_damaged(tmp_path, number: int) -> None:
    layout = testing.Layout(n_shards=2, format="receipts", torn=[1])
    root = testing.write_layout(layout, tmp_path / "plan")
    with FileSystemFaults(root) as fs:
        fs.fail("open", number, match="shard_000001.json", nth=2)
        with pytest.raises(OSError, match="shard_000001") as caught:
            shardproof.validate(root, level="complete")
    assert caught.value.errno == number

"""A staged copy is whole and proven, or there is none; and what is there is not copied again."""

import errno
import fcntl
import json
import logging
import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import shardproof
from shardproof import (
    ManifestError,
    MultiShardSaver,
    ReceiptStore,
    ShardReadError,
    ShardValidationError,
    testing,
)
from shardproof._base import files as _files
from shardproof.staging import _copy, stage
from shardproof.testing.faults import FileSystemFaults
from tests.helpers.file_limit import no_file_above
from tests.helpers.forking import ended, forked
from tests.helpers.killing import Begin, at_every_state, skip_where_not_permitted
from tests.helpers.planning import complete, new_store, receipt_path
from tests.helpers.waiting import until

OURS = {".shardproof-stage.jsonl", ".shardproof-stage.lock"}


@pytest.fixture
def copy(shards_dir, to) -> Path:
    """As `stage` made it, which is to find it there."""
    return stage(shards_dir, to)


def base(to: Path) -> Path:
    return to / f"shardproof-{os.geteuid()}"


def content(path: Path) -> dict[str, bytes]:
    """Every file below a directory, less what shardproof itself put there."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.name not in OURS and file.suffix != ".tmp" and file.is_file()
    }


def inodes(path: Path) -> dict[str, int]:
    return {name: (path / name).stat().st_ino for name in content(path)}


def leftovers(to: Path) -> list[Path]:
    return list(to.rglob("*.tmp"))


def assert_whole(source: Path, copy: Path) -> None:
    assert content(copy) == content(source)
    assert shardproof.validate(copy, level="valid").ok


def assert_same(source: Path, copy: Path) -> None:
    assert_whole(source, copy)
    assert leftovers(copy) == []


class TestCopy:
    def test_it_has_a_name_and_a_place_of_its_own(self, make_shards_dir, to) -> None:
        shards_dir = make_shards_dir(5, labels=True)
        copy = stage(shards_dir, to)
        assert copy.parent == base(to)
        assert copy.name.startswith(f"{shards_dir.name}-")
        assert_same(shards_dir, copy)
        assert copy.parent.stat().st_mode & 0o777 == copy.stat().st_mode & 0o777 == 0o700

    def test_folders_in_folders(self, tmp_path, to) -> None:
        store = new_store(tmp_path, 1)
        with store.claim(0) as work:
            work.output_path("a/b/c/x.bin").write_bytes(b"tokens")
            work.output_path("a/y.idx").write_bytes(b"index")
        copy = stage(store.path, to, level="valid")
        assert_promised(store.path, copy)
        assert {"a/b/c/x.bin", "a/y.idx"} <= set(content(copy))
        folders = [path for path in copy.rglob("*") if path.is_dir()]
        assert {*folders} == {copy / name for name in ("a", "a/b", "a/b/c", "receipts")}
        assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}

    def test_by_default_it_goes_to_tmpdir_and_nowhere_else(
        self, make_shards_dir, to, monkeypatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(to))
        assert stage(make_shards_dir(1)).parent == base(to)
        monkeypatch.setenv("TMPDIR", str(to / "gone"))
        with pytest.raises(NotADirectoryError, match="gone"):
            stage(make_shards_dir(1))

    def test_a_name_that_no_one_would_give(self, make_shards_dir, tmp_path, to) -> None:
        odd = tmp_path / os.fsdecode(b"a \xff\n\xc3\xa9*" + b"x" * 150)
        make_shards_dir(2).rename(odd)
        copy = stage(odd, to)
        assert copy.name.isascii()
        assert_same(odd, copy)

    def test_linked_shards_become_files(self, tmp_path, to) -> None:
        shards_dir = testing.write_layout(testing.Layout(n_shards=3, linked=[1]), tmp_path / "from")
        copy = stage(shards_dir, to)
        assert not (copy / "acts000001.bin").is_symlink()
        assert shardproof.validate(copy, level="valid").ok
        assert content(copy).items() <= content(shards_dir).items()

    def test_threads_and_descriptors_are_given_back(self, make_shards_dir, to) -> None:
        shards_dir = make_shards_dir(9)
        stage(shards_dir, to, workers=4)
        before = threading.active_count(), len(os.listdir("/dev/fd"))
        stage(shards_dir, to, workers=4, level="valid")
        assert (threading.active_count(), len(os.listdir("/dev/fd"))) == before

    @pytest.mark.parametrize("level", ["complete", "valid"])
    def test_calls_that_move_few_bytes(self, shards_dir, to, level: str) -> None:
        with FileSystemFaults(to) as target, FileSystemFaults(shards_dir) as source:
            source.short("read", 100, match="acts*.bin")
            target.short("write", 77, match="*.tmp")
            copy = stage(shards_dir, to, level=level)
        assert_same(shards_dir, copy)


class TestReuse:
    def test_it_copies_nothing(self, shards_dir, copy, to) -> None:
        before = inodes(copy)
        with FileSystemFaults(shards_dir) as fs:
            assert stage(shards_dir, to) == copy
            moved = [call for call in fs.calls if call.operation == "read"]
        assert inodes(copy) == before
        assert {os.path.basename(call.path) for call in moved} == {"shards.json", "metadata.json"}

    def test_what_was_purged_is_copied_again(self, shards_dir, copy, to) -> None:
        before = inodes(copy)
        for name in ("acts000001.bin", "metadata.json", "shards.json"):
            (copy / name).unlink()
        assert stage(shards_dir, to) == copy
        assert_same(shards_dir, copy)
        same = {name for name, inode in inodes(copy).items() if before[name] == inode}
        assert same >= {"acts000000.bin", "acts000002.bin"}

    @pytest.mark.parametrize("level", ["complete", "valid"])
    @pytest.mark.parametrize("harm", ["cut", "rewritten", "replaced", "link"])
    def test_a_copy_that_was_changed_is_made_again(
        self, shards_dir, to, harm: str, level: str
    ) -> None:
        file = stage(shards_dir, to, level=level) / "acts000001.bin"
        data = file.read_bytes()
        if harm in {"replaced", "link"}:
            file.unlink()
        if harm == "cut":
            os.truncate(file, 100)
        elif harm == "link":
            file.symlink_to(shards_dir / file.name)
        else:
            file.write_bytes(data[::-1])
        assert_same(shards_dir, stage(shards_dir, to, level=level))
        assert not file.is_symlink()

    def test_a_directory_in_the_place_of_a_file_is_an_error(self, shards_dir, to) -> None:
        file = stage(shards_dir, to) / "acts000001.bin"
        file.unlink()
        file.mkdir()
        with pytest.raises(IsADirectoryError):
            stage(shards_dir, to)

    def test_valid_sees_what_its_disk_lost(self, shards_dir, to, caplog) -> None:
        """Whatever size and times say: here they are put back."""
        file = stage(shards_dir, to, level="valid") / "acts000001.bin"
        status = file.stat()
        with file.open("r+b") as bits:
            bits.write(b"\xff" * 9)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert file.read_bytes() != (shards_dir / file.name).read_bytes()
        with caplog.at_level(logging.WARNING):
            assert_same(shards_dir, stage(shards_dir, to, level="valid"))
        assert "These files are copied again" in caplog.text

    def test_what_was_copied_without_a_digest_is_not_taken_for_valid(
        self, shards_dir, copy, to
    ) -> None:
        before = inodes(copy)
        stage(shards_dir, to, level="valid")
        after = inodes(copy)
        assert all(before[name] != after[name] for name in after if name != "shards.json")
        stage(shards_dir, to, level="valid")
        assert inodes(copy) == after

    @pytest.mark.parametrize("keeps_mtime", [False, True])
    def test_a_source_that_changed_is_copied_again(
        self, shards_dir, copy, to, keeps_mtime: bool
    ) -> None:
        file = shards_dir / "acts000001.bin"
        status = file.stat()
        data = file.read_bytes()[::-1]
        file.unlink()
        file.write_bytes(data)
        if keeps_mtime:
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert stage(shards_dir, to) == copy
        assert_same(shards_dir, copy)

    def test_what_an_earlier_start_of_the_machine_left_is_not_believed(
        self, shards_dir, copy, to
    ) -> None:
        rewrite_proofs(copy, boot="00000000-0000-0000-0000-000000000000")
        before = inodes(copy)["acts000001.bin"]
        assert_same(shards_dir, stage(shards_dir, to))
        assert inodes(copy)["acts000001.bin"] != before


class TestSource:
    def test_every_problem_is_told_and_nothing_is_staged(self, tmp_path, to) -> None:
        shards_dir = testing.write_layout(
            testing.Layout(n_shards=6, missing=[1], empty=[2], directory=[3], truncated=[4]),
            tmp_path / "from",
        )
        with pytest.raises(ShardValidationError) as caught:
            stage(shards_dir, to)
        report = caught.value.report
        assert {finding.path.name for finding in report.findings} == {
            f"acts00000{index}.bin" for index in (1, 2, 3, 4)
        }
        assert all(finding.path.parent == shards_dir for finding in report.findings)
        assert list(to.rglob("*.bin")) == list(to.rglob("*.json")) == []

    @pytest.mark.parametrize("level", ["present", "complete", "valid"])
    def test_a_digest_that_is_not_kept(self, tmp_path, to, level: str) -> None:
        store = new_store(tmp_path, 3)
        for index in range(3):
            complete(store, index)
        bad = [store.path / f"shard_00000{index}.bin" for index in (0, 2)]
        for path in bad:
            path.write_bytes(path.read_bytes()[::-1])
        with pytest.raises(ShardValidationError) as caught:
            stage(store.path, to, level=level)
        assert {finding.path for finding in caught.value.report.findings} == set(bad)
        assert {finding.kind for finding in caught.value.report.findings} == {"digest"}
        assert not list(to.rglob("plan.json"))
        assert leftovers(to) == []

    def test_names_that_lead_out(self, shards_dir, tmp_path, to) -> None:
        secret = shards_dir.parent / "secret"
        secret.write_bytes((shards_dir / "acts000001.bin").read_bytes())
        listed = json.loads((shards_dir / "shards.json").read_text())
        listed[1]["name"] = "../secret"
        (shards_dir / "shards.json").write_text(json.dumps(listed))
        with pytest.raises(ManifestError, match="names that are refused"):
            stage(shards_dir, to)

    def test_a_shard_that_is_written_to_meanwhile(self, make_shards_dir, to) -> None:
        shards_dir = make_shards_dir(2, n_examples=8, d_model=4096)
        file = shards_dir / "acts000001.bin"
        with FileSystemFaults(to) as fs:
            fs.slow("write", 0.2, match="*.tmp")
            stop = threading.Event()

            def write() -> None:
                while not stop.wait(0.01):
                    os.utime(file)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                with pytest.raises(ShardReadError, match=r"acts000001\.bin.*it changed while"):
                    stage(shards_dir, to)
            finally:
                stop.set()
                writer.join()
        assert leftovers(to) == []
        assert not list(to.rglob("shards.json"))
        assert_same(shards_dir, stage(shards_dir, to))

    def test_a_list_that_changes_meanwhile(self, shards_dir, to) -> None:
        listing = shards_dir / "shards.json"

        def change(done: int, total: int) -> None:
            listing.write_bytes(listing.read_bytes() + b" ")

        with pytest.raises(ShardReadError, match=r"shards\.json': it changed while"):
            stage(shards_dir, to, progress=change)
        assert not list(to.rglob("shards.json"))

    def test_a_source_that_can_not_be_read(self, shards_dir, to) -> None:
        with FileSystemFaults(shards_dir) as fs:
            fs.fail("read", errno.EIO, match="acts000001.bin")
            with pytest.raises(OSError, match="Input/output error"):
                stage(shards_dir, to)
        assert leftovers(to) == []
        assert_same(shards_dir, stage(shards_dir, to))


def two_plans(base: Path, n_done: int = 3) -> ReceiptStore:
    """A plan with receipts, beside the directory of another one."""
    store, other = new_store(base / "a", 3), new_store(base / "b", 3)
    for index in range(n_done):
        complete(store, index)
        complete(other, index)
    return store


def checkpoints(path: Path, *prefixes: str) -> Path:
    path.mkdir(exist_ok=True)
    for number, prefix in enumerate(prefixes):
        for rank in range(2):
            MultiShardSaver().save_shard(path / prefix, rank, {"w": np.arange(9) + number + rank})
        MultiShardSaver().save_metadata(path / prefix, world_size=2)
    return path


class TestWhatCanNotBeLookedAt:
    def test_receipts_that_can_not_be_listed_are_not_left_out(self, tmp_path, to) -> None:
        store = two_plans(tmp_path)
        with FileSystemFaults(store.path) as fs:
            stage(store.path, to, workers=1)
            n_calls = sum((c.operation, c.path.name) == ("scandir", "receipts") for c in fs.calls)
        assert n_calls
        for nth in range(1, n_calls + 1):
            shutil.rmtree(base(to), ignore_errors=True)
            with FileSystemFaults(store.path) as fs:
                fs.fail("scandir", errno.EIO, match="receipts", nth=nth, times=1)
                with pytest.raises(OSError, match="Input/output error"):
                    stage(store.path, to, workers=1)
            for copy in finished(to):
                assert_promised(store.path, copy)
        assert_promised(store.path, stage(store.path, to))

    def test_none_of_the_source_s_files(self, shards_dir, to) -> None:
        with FileSystemFaults(shards_dir) as fs:
            fs.fail("open", errno.EIO, match="*.bin")
            problem = "could not check 3 of 3 files: Input/output error; the first is"
            with pytest.raises(OSError, match=problem) as caught:
                stage(shards_dir, to)
        assert not isinstance(caught.value, FileNotFoundError)
        assert caught.value.errno == errno.EIO
        assert caught.value.filename == str(shards_dir / "acts000000.bin")

    @pytest.mark.parametrize("name", [".shardproof-stage.jsonl", ".shardproof-stage.lock"])
    def test_what_a_copy_has_of_its_own_is_named_whole(
        self, shards_dir, copy, to, name: str
    ) -> None:
        with FileSystemFaults(to) as fs:
            fs.fail("open", errno.EIO, match=name)
            with pytest.raises(OSError, match="Input/output error") as caught:
                stage(shards_dir, to)
        assert caught.value.filename == str(copy / name)


def finished(to: Path) -> list[Path]:
    found = base(to).iterdir() if base(to).exists() else ()
    return [path for path in found if path.suffix != ".unfinished"]


def assert_promised(source: Path, copy: Path) -> None:
    """A copy promises what its source does, and keeps it as well."""
    reports = [shardproof.validate(path, level="valid").to_dict() for path in (source, copy)]
    for report, root in zip(reports, (source, copy), strict=True):
        assert report.pop("path") == str(root)
        report["unproven"] = [os.path.relpath(path, root) for path in report["unproven"]]
    assert reports[0] == reports[1]
    assert reports[0]["ok"]


SOURCES = {
    "saev": lambda path: testing.write_layout(testing.Layout(n_shards=3), path / "from"),
    "saev with labels": lambda path: testing.write_layout(
        testing.Layout(n_shards=3, labels=True), path / "from"
    ),
    "a plan": lambda path: two_plans(path).path,
    "one checkpoint": lambda path: checkpoints(path / "c", "model"),
    "two checkpoints": lambda path: checkpoints(path / "c", "step_1", "step_2"),
    "three, one of them hidden": lambda path: checkpoints(path / "c", "b", "a", ".hidden"),
}


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_format_at_every_level(kind: str, level: str, tmp_path, to) -> None:
    source = SOURCES[kind](tmp_path)
    copy = stage(source, to, level=level)
    assert_promised(source, copy)
    assert stage(source, to, level=level) == copy
    assert leftovers(to) == []


def test_a_plan_with_nothing_done_is_copied_and_promises_nothing_yet(tmp_path, to) -> None:
    source = two_plans(tmp_path, 0).path
    for path in (source, stage(source, to)):
        with pytest.raises(ManifestError, match="no shard is completed"):
            shardproof.validate(path)


def test_another_checkpoint_beside_the_first_is_another_copy(tmp_path, to) -> None:
    source = checkpoints(tmp_path / "c", "step_1")
    first = stage(source, to)
    MultiShardSaver().save_shard(source / "step_3", 0, {"w": np.arange(9)})  # never completed
    assert stage(source, to) == first
    checkpoints(source, "step_2")
    second = stage(source, to)
    assert second != first
    assert_promised(source, second)
    assert not list(second.glob("step_3*"))


class TestReceiptsThatAreGone:
    """A shard is to be made again: its receipt is removed, and the plan is the same one."""

    @pytest.fixture
    def store(self, tmp_path) -> ReceiptStore:
        return two_plans(tmp_path)

    def test_they_go_from_the_copy_and_come_again(self, store, to, caplog) -> None:
        copy = stage(store.path, to, level="valid")
        before = inodes(copy)
        for index in (0, 2):
            receipt_path(store, index).unlink()
        assert stage(store.path, to, level="valid") == copy
        assert caplog.text.count("copied again") == 0
        assert_promised(store.path, copy)
        assert set(inodes(copy).items()) < set(before.items())
        complete(store, 2, b"other tokens")
        assert stage(store.path, to, level="valid") == copy
        assert_promised(store.path, copy)
        assert leftovers(to) == []

    def test_what_others_put_there_stays_and_is_told(self, store, to) -> None:
        copy = stage(store.path, to)
        receipt_path(store, 1).unlink()
        receipt = copy / "receipts" / "shard_000001.json"
        data = receipt.read_bytes()
        receipt.write_bytes(data + b" ")  # another one than was staged
        for _ in range(2):
            with pytest.raises(
                FileExistsError, match="found 1 manifest files that `stage` did not put"
            ) as caught:
                stage(store.path, to)
            assert caught.value.filename == str(receipt)
            assert receipt.read_bytes() == data + b" "
        receipt.unlink()
        assert_promised(store.path, stage(store.path, to))

    @pytest.mark.parametrize(
        ("place", "name"),
        [(_copy.StagedCopy, "_bring"), (_files, "remove_if")],
        ids=["before it is looked at", "while it is removed"],
    )
    def test_one_that_came_back_stays(self, store, to, monkeypatch, place, name: str) -> None:
        """A process that began earlier must not remove what another one has brought since."""
        copy = stage(store.path, to)
        receipt_path(store, 1).unlink()
        later: list[Path] = []

        def be_faster() -> None:
            if not later:
                later.append(copy)
                complete(store, 1, b"other tokens")
                stage(store.path, to)

        before(monkeypatch, place, name, be_faster)
        with pytest.raises(ShardReadError, match="it changed while it was staged"):
            stage(store.path, to)
        assert later
        assert_promised(store.path, copy)
        assert leftovers(to) == []

    @pytest.mark.parametrize("side", ["source", "copy"])
    def test_where_nobody_can_look(self, store, to, side: str) -> None:
        """A look that failed is not one that found nothing."""
        copy = stage(store.path, to)
        receipt_path(store, 1).unlink()
        with FileSystemFaults(store.path if side == "source" else to) as fs:
            fs.fail("stat", errno.EIO, match="shard_000001.json")
            with pytest.raises(OSError, match="Input/output error"):
                stage(store.path, to)
        assert "shard_000001.json" in os.listdir(copy / "receipts")
        assert_promised(store.path, stage(store.path, to))

    def test_the_copy_is_whole_whatever_call_it_is_killed_at(self, store, to) -> None:
        """Of what was there or is, or of something between them."""
        skip_where_not_permitted()
        copy = stage(store.path, to)
        for index in (0, 2):
            receipt_path(store, index).unlink()

        def act(begin: Begin) -> None:
            begin()
            stage(store.path, to, workers=1)

        def check(_: int) -> None:
            assert shardproof.validate(copy, level="valid").ok
            assert "shard_000001.json" in os.listdir(copy / "receipts")

        assert at_every_state(act, to, check=check) > 2


def before(monkeypatch, owner: object, name: str, act) -> None:
    real = getattr(owner, name)

    def call(*args: object, **keywords: object):
        act()
        return real(*args, **keywords)

    monkeypatch.setattr(owner, name, call)


class TestName:
    def test_what_is_unfinished_is_gone_on_with(self, shards_dir, to) -> None:
        with FileSystemFaults(to) as fs:
            fs.fail("rename", errno.EIO, match="*.unfinished")
            with pytest.raises(OSError, match="Input/output error"):
                stage(shards_dir, to)
        (unfinished,) = base(to).iterdir()
        before = inodes(unfinished)
        copy = stage(shards_dir, to)
        assert inodes(copy) == before
        assert f"{copy}.unfinished" == str(unfinished)

    def test_what_another_one_left_behind_goes(self, shards_dir, copy, to) -> None:
        behind = Path(f"{copy}.unfinished")
        behind.mkdir(0o700)
        (behind / "acts000000.bin").write_bytes(b"half")
        assert stage(shards_dir, to) == copy
        assert list(base(to).iterdir()) == [copy]

    @pytest.mark.parametrize(
        "owner", [(_copy.StagedCopy, "_transfer"), (_copy.StagedCopy, "_check"), (_files, "move")]
    )
    @pytest.mark.parametrize("other", ["renamed", "made"])
    def test_another_process_is_faster(
        self, shards_dir, copy, to, monkeypatch, owner: tuple[object, str], other: str
    ) -> None:
        """It renames the directory that both work in, or puts one of its own there."""
        own = to / "own"
        copy.rename(own)

        def be_faster() -> None:
            if not copy.exists():
                Path(f"{copy}.unfinished").rename(copy) if other == "renamed" else own.rename(copy)

        before(monkeypatch, *owner, be_faster)
        assert stage(shards_dir, to, workers=1) == copy
        assert_whole(shards_dir, copy)
        assert list(base(to).iterdir()) == [copy]


@pytest.mark.parametrize("name", [".shardproof-stage.jsonl", ".shardproof-stage.lock/x.bin"])
def test_a_source_does_not_state_what_is_proven(tmp_path, to, name: str) -> None:
    store = new_store(tmp_path, 1)
    with store.claim(0) as work:
        work.output_path(name).write_bytes(b"tokens")
    assert shardproof.validate(store.path).ok
    with pytest.raises(ManifestError, match=rf"files of its own (?s:.*)'{name}'"):
        stage(store.path, to)
    assert not list(to.rglob("*/*"))


def rewrite_proofs(staged: Path, **changes: object) -> None:
    sidecar = staged / ".shardproof-stage.jsonl"
    lines = [json.loads(line) | changes for line in sidecar.read_text().split()]
    sidecar.write_text("".join(json.dumps(line) + "\n" for line in lines))


class TestDestination:
    @pytest.mark.parametrize("depth", [0, 1])
    @pytest.mark.parametrize("harm", ["link", "file", "readable", "writable", "others"])
    def test_what_another_user_may_have_put_there(
        self, request, shards_dir, copy, tmp_path, to, harm: str, depth: int
    ) -> None:
        lure = tmp_path / "lure"
        lure.mkdir(mode=0o700)
        path = (base(to), copy)[depth]
        if harm in {"link", "file"}:
            shutil.rmtree(path)
            path.symlink_to(lure) if harm == "link" else path.write_text("")
        else:
            path.chmod({"readable": 0o750, "writable": 0o722, "others": 0o700}[harm])
        if harm == "others":
            if os.geteuid():
                pytest.skip("only root gives files away")
            os.chown(path, 12345, -1)
            request.addfinalizer(lambda: os.chown(path, 0, -1))  # so that anybody may remove it
        with pytest.raises(PermissionError, match=rf"expected a directory of uid.*'{path}'"):
            stage(shards_dir, to)
        assert list(lure.iterdir()) == []

    def test_links_in_the_copy_are_not_followed(self, shards_dir, copy, tmp_path, to) -> None:
        lure = tmp_path / "lure"
        lure.write_text("mine")
        for name in ("acts000000.bin", "metadata.json", "shards.json"):
            (copy / name).unlink()
            (copy / name).symlink_to(lure)
        assert_same(shards_dir, stage(shards_dir, to))
        assert lure.read_text() == "mine"
        assert not any(path.is_symlink() for path in copy.iterdir())
        for name in OURS:
            (copy / name).unlink()
            (copy / name).symlink_to(lure)
            with pytest.raises(OSError, match="symbolic links"):
                stage(shards_dir, to)
            (copy / name).unlink()
            (copy / name).touch()
        assert lure.read_text() == "mine"

    def test_a_folder_that_is_a_link(self, tmp_path, to) -> None:
        store = new_store(tmp_path, 1)
        complete(store, 0)
        copy = stage(store.path, to)
        shutil.rmtree(copy / "receipts")
        lure = tmp_path / "lure"
        lure.mkdir()
        (copy / "receipts").symlink_to(lure)
        with pytest.raises(PermissionError, match="symbolic link"):
            stage(store.path, to)
        assert list(lure.iterdir()) == []

    def test_a_disk_that_is_too_small(self, make_shards_dir, to, monkeypatch) -> None:
        real = os.statvfs

        def small(path):
            return os.statvfs_result((*real(path)[:4], 1, *real(path)[5:]))

        monkeypatch.setattr(os, "statvfs", small)
        with pytest.raises(OSError, match=r"expected \d+ bytes free for 4 files of") as caught:
            stage(make_shards_dir(3, d_model=512), to)
        assert caught.value.errno == errno.ENOSPC
        assert list(to.rglob("*.bin")) == []

    def test_a_disk_that_fills_up(self, shards_dir, to) -> None:
        with FileSystemFaults(to) as fs:
            fs.fail("write", errno.ENOSPC, nth=3, match="*.tmp")
            with pytest.raises(OSError, match="No space left"):
                stage(shards_dir, to)
        assert leftovers(to) == []
        assert not list(to.rglob("shards.json"))
        for path in to.rglob("*.bin"):
            assert path.read_bytes() == (shards_dir / path.name).read_bytes()
        assert_same(shards_dir, stage(shards_dir, to))

    def test_a_file_that_may_not_be_so_large(self, make_shards_dir, to) -> None:
        """A real limit of the kernel's, half-way through a shard."""
        shards_dir = make_shards_dir(2, d_model=512)

        def limited() -> None:
            refused = pytest.raises(OSError, match=r"File too large: '.*\.bin' -> '")
            with no_file_above(50_000), refused as caught:
                stage(shards_dir, to)
            assert Path(caught.value.filename).parent == shards_dir
            assert Path(caught.value.filename2).parent.parent == base(to)

        assert (shards_dir / "acts000000.bin").stat().st_size > 50_000
        assert ended(forked(limited)) == 0
        assert leftovers(to) == list(to.rglob("*.bin")) == []
        assert_same(shards_dir, stage(shards_dir, to))


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        *(({"level": None}, TypeError), ({"workers": True}, TypeError), ({"to": 3}, TypeError)),
        *(({"progress": 1}, TypeError), ({"level": "whole"}, ValueError)),
        ({"workers": 0}, ValueError),
    ],
)
def test_wrong_arguments(make_shards_dir, to, keywords: dict, error: type) -> None:
    with pytest.raises(error, match=next(iter(keywords))):
        stage(make_shards_dir(1), **{"to": to, **keywords})


class TestManyProcesses:
    @pytest.mark.slow
    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
    def test_one_copies_and_the_others_wait(
        self, make_shards_dir, to, tmp_path, monkeypatch, end: signal.Signals
    ) -> None:
        """Another one goes on where it dies or hangs; each file is copied about once."""
        shards_dir, log, over = make_shards_dir(32), tmp_path / "log", tmp_path / "over"
        log.touch()
        transfer = _copy.StagedCopy._transfer

        def counted(self, source: int, copy: int, size: int, file):
            with log.open("a") as lines:
                lines.write(f"{os.getpid()}\n")
            so_far = log.read_text().split()
            if len(so_far) > 4 and so_far[0] == str(os.getpid()):
                until(over.exists)
            return transfer(self, source, copy, size, file)

        monkeypatch.setattr(_copy.StagedCopy, "_transfer", counted)
        monkeypatch.setattr(_copy, "_WAIT_SECONDS", 60.0 if end != signal.SIGSTOP else 1.0)
        pids = [
            forked(lambda: assert_whole(shards_dir, stage(shards_dir, to, workers=2)))
            for _ in range(8)
        ]
        until(lambda: len(log.read_text().split()) > 4)
        first = int(log.read_text().split()[0])
        os.kill(first, end)
        for pid in pids:
            if pid != first:
                assert ended(pid) == 0
        over.touch()
        os.kill(first, signal.SIGCONT)
        assert ended(first) == (-end if end == signal.SIGKILL else 0)
        copied = log.read_text().split()
        assert len(copied) <= 33 + 4  # what was under way, begun anew by both
        assert len(set(copied)) == 2
        assert_same(shards_dir, stage(shards_dir, to))
        assert leftovers(to) == []

    def test_where_there_are_no_locks(self, shards_dir, to, monkeypatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "lockf", refuse)
        assert_same(shards_dir, stage(shards_dir, to))


class TestACheckpointByItsPrefix:
    def test_it_alone_is_copied(self, tmp_path, to) -> None:
        checkpoints(tmp_path / "run", "a", "b")
        copies = [stage(tmp_path / "run" / name, to, level="valid") for name in ("a", "b")]
        assert [copy.name for copy in copies] == ["a", "b"]
        assert copies[0].parent != copies[1].parent
        for copy in copies:
            ends = (".metadata.json", "_shard_0.shard", "_shard_1.shard")
            assert sorted(content(copy.parent)) == [f"{copy.name}{end}" for end in ends]
            assert shardproof.validate(copy, level="valid").ok
            assert stage(tmp_path / "run" / copy.name, to, level="valid") == copy
        assert stage(tmp_path / "run", to) not in {copy.parent for copy in copies}

    def test_findings_of_another_one_are_not_its_own(self, tmp_path, to, make_checkpoint) -> None:
        prefix = make_checkpoint(world_size=2)
        prefix.with_name("torn.metadata.json").write_text('{"schema_version": 1, "world_size": 1')
        assert shardproof.validate(stage(prefix, to), level="valid").ok
        with pytest.raises(ShardValidationError):
            stage(prefix.parent, to)

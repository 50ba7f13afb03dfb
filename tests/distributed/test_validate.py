"""One check for all ranks: the same report, or the same error, whatever any of them meets."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shardproof
from shardproof import checks, distributed, formats
from shardproof.distributed import _checks
from shardproof.errors import FetchError, ManifestError, ManifestNotFoundError, RankError
from shardproof.report import MOST_KEPT, BrokenFiles
from tests.helpers.in_memory import in_memory
from tests.helpers.ranks import PipeGroup, in_processes, on_ranks

SHARED = "node1", "node1", "node2"
BROKEN = {"missing": [1, 7, 8], "empty": [4], "truncated": [5], "flipped": [2], "fifo": [3]}


def validate(path: object, **keywords: Any):
    """What is to be called on each rank."""

    def call(group: PipeGroup) -> shardproof.Report:
        return distributed.validate(path, group=group, **{"timeout": 30, **keywords})

    return call


def the_one(found: list[Any]) -> Any:
    """What all ranks return, or raise: the same class and text."""
    first = found[0]
    for each in found:
        assert type(each) is type(first), each
        assert str(each) == str(first)
        assert isinstance(each, BaseException) or each == first
    return first


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
@pytest.mark.parametrize("n_ranks", [1, 2, 5, 20])
def test_each_rank_returns_what_validate_returns(make_shards_dir, level: str, n_ranks: int) -> None:
    path = make_shards_dir(12, **BROKEN)
    (path / "acts000007.bin.part").write_bytes(b"x")
    (path / "stray").write_bytes(b"x")
    found = on_ranks(validate(path, level=level, strict=True), *["node1"] * n_ranks)
    assert the_one(found) == shardproof.validate(path, level=level, strict=True)
    assert found[0].n_findings >= 6


@pytest.mark.parametrize("hosts", [SHARED, ("n",)])
class TestAsByOne:
    """What is checked is no plain directory, or not in the plain way."""

    def test_quick(self, make_shards_dir, hosts, monkeypatch) -> None:
        monkeypatch.setattr("shardproof.checks._proofs.SETTLED_SECONDS", -3600.0)
        path = make_shards_dir(9)
        shardproof.seal(path)
        (path / "acts000003.bin").write_bytes(b"x" * (path / "acts000003.bin").stat().st_size)
        how = {"level": "valid", "quick": True}
        report = the_one(on_ranks(validate(path, **how), *hosts))
        assert report == shardproof.validate(path, **how)
        assert (report.n_unread, report.n_findings) == (8, 1)

    @pytest.mark.parametrize("level", ["complete", "valid"])
    def test_against_another_directory(self, make_shards_dir, hosts, level: str) -> None:
        path, whole = make_shards_dir(9, **BROKEN), make_shards_dir(9)
        how = {"level": level, "against": whole, "strict": True}
        assert the_one(on_ranks(validate(path, **how), *hosts)) == shardproof.validate(path, **how)

    def test_against_a_list_of_another_algorithm(self, make_shards_dir, hosts, tmp_path) -> None:
        path = make_shards_dir(3)
        names = sorted(os.listdir(path))
        (tmp_path / "sums").write_text("".join(f"{'0' * 64}  {name}\n" for name in names))
        how = {"level": "valid", "against": tmp_path / "sums"}
        report = the_one(on_ranks(validate(path, **how), *hosts))
        assert report == shardproof.validate(path, **how)
        assert "is the list by another algorithm?" in report.notes[-1]

    def test_a_plan_of_which_nothing_is_done(self, make_receipts_dir, hosts) -> None:
        path = make_receipts_dir(3, missing=[0, 1, 2])
        assert the_one(on_ranks(validate(path), *hosts)) == shardproof.validate(path)

    def test_a_prefix(self, make_checkpoint, hosts) -> None:
        prefix = make_checkpoint(world_size=4)
        sorted(prefix.parent.glob("*_shard_*"))[2].unlink()
        report = the_one(on_ranks(validate(prefix), *hosts))
        assert report == shardproof.validate(prefix)
        assert (report.path, report.n_findings) == (prefix, 1)

    def test_a_directory_that_is_empty(self, tmp_path, hosts) -> None:
        assert isinstance(the_one(on_ranks(validate(tmp_path), *hosts)), ManifestNotFoundError)


def test_of_very_many_findings_the_first_are_kept_as_by_one(make_shards_dir, monkeypatch) -> None:
    from shardproof import validation

    monkeypatch.setattr(validation, "MOST_KEPT", 4)
    path = make_shards_dir(30, missing=[0, 1, 2, 9, 11, 12, 13, 14, 15, 29], empty=[20])
    report = the_one(on_ranks(validate(path), *SHARED))
    assert report == shardproof.validate(path)
    assert (len(report.findings), report.n_findings) == (4, 11)
    assert report.broken() == shardproof.validate(path).broken()
    assert MOST_KEPT == 10_000


def test_files_are_dealt_out(make_shards_dir, monkeypatch) -> None:
    looked: dict[str, list[str]] = {}
    real = checks.look_at_all

    def look(question: Any, dir_fd: int, regular: Any, files: Any) -> Any:
        name = threading.current_thread().name
        looked.setdefault(name, []).extend(file.name for file in files)
        return real(question, dir_fd, regular, files)

    monkeypatch.setattr(checks, "look_at_all", look)
    path = make_shards_dir(30)
    assert the_one(on_ranks(validate(path, workers=1), *SHARED)).ok
    names = [name for some in looked.values() for name in some]
    assert sorted(names) == sorted({*names})
    assert len(names) == shardproof.validate(path).n_files


def test_where_all_meet_the_same_error_it_is_that_of_validate(tmp_path) -> None:
    error = the_one(on_ranks(validate(tmp_path / "gone"), *SHARED))
    with pytest.raises(ManifestNotFoundError) as alone:
        shardproof.validate(tmp_path / "gone")
    assert (type(error), str(error)) == (alone.type, str(alone.value))
    assert vars(error) == vars(alone.value)
    assert error.errno == alone.value.errno


def test_a_blind_rank_is_named_with_what_it_saw_and_the_others_did(make_shards_dir) -> None:
    path = make_shards_dir(3)

    def call(group: PipeGroup) -> Any:
        return validate(path if group.rank != 2 else path / "gone")(group)

    error = the_one(on_ranks(call, *SHARED))
    assert isinstance(error, ManifestNotFoundError)
    assert error.path == str(path / "gone")
    first, *others = str(error).splitlines()
    assert first.startswith(f"rank 2 on node2: Could not read the manifest at '{path / 'gone'}'")
    tip = 'if each host has a directory of its own, spread="node" checks each of them'
    assert others == [f"no error on ranks 0-1 on node1; {tip}"]


def test_an_error_of_the_system_keeps_its_number(make_shards_dir, monkeypatch) -> None:
    path = make_shards_dir(3)
    real = formats.locate

    def locate(where: Any) -> Any:
        if os.fspath(where).endswith("eio"):
            raise OSError(5, os.strerror(5), "/x")
        return real(where)

    monkeypatch.setattr(formats, "locate", locate)
    call = lambda group: validate(path / "eio" if group.rank == 1 else path)(group)  # noqa: E731
    error = the_one(on_ranks(call, *SHARED))
    assert (type(error), error.errno, error.filename) == (OSError, 5, "/x")
    assert "rank 1 on node1: Input/output error" in str(error)


def test_an_error_has_the_fields_that_it_had(make_shards_dir, monkeypatch) -> None:
    path = make_shards_dir(3)

    def promise_of(*_: Any, **__: Any) -> None:
        raise FetchError("no\nbytes", url="http://x", path="/\udcff", causes=("late", "gone"))

    monkeypatch.setattr("shardproof.validation.promise_of", promise_of)
    error = the_one(on_ranks(validate(path), *SHARED))
    assert type(error) is FetchError
    assert (error.url, error.causes) == ("http://x", ("late", "gone"))
    assert error.path == r"/\udcff"
    assert error.problem == "no\nbytes"


def test_ranks_may_show_progress_and_have_threads_as_they_like(make_shards_dir) -> None:
    path, seen = make_shards_dir(9), list[tuple[int, int]]()

    def call(group: PipeGroup) -> Any:
        progress = (lambda *told: seen.append(told)) if group.rank == 1 else False
        return validate(path, progress=progress, workers=group.rank + 1)(group)

    assert the_one(on_ranks(call, *SHARED)).ok
    assert seen[-1] == (3, 3)


def test_ranks_that_see_different_directories_are_named(make_shards_dir, tmp_path) -> None:
    paths = [make_shards_dir(3), make_shards_dir(3)]
    error = the_one(on_ranks(lambda g: validate(paths[g.rank == 2])(g), *SHARED))
    assert type(error) is RankError
    assert "ranks 0-1 on node1: " in str(error)
    assert f"rank 2 on node2: '{paths[1]}' (device " in str(error)
    assert 'spread="node"' in str(error)


def test_copies_of_one_inode_on_disks_of_two_machines_are_different(
    make_shards_dir, monkeypatch
) -> None:
    """As those are that each node makes by the same steps on a new file system."""
    path, machines = make_shards_dir(3), iter(["one", "two"])
    monkeypatch.setattr(_checks, "machine_of", lambda _: next(machines))
    error = the_one(on_ranks(validate(path), "n1", "n2"))
    assert type(error) is RankError
    assert "rank 1 on n2" in str(error)
    assert "on the disk of machine two" in str(error)


class TestNodes:
    def test_the_directory_of_each_host_is_checked_by_one_rank(self, make_shards_dir) -> None:
        paths = [make_shards_dir(3), make_shards_dir(3, missing=[2])]
        hosts = "n1", "n2", "n1", "n2"
        call = lambda g: validate(paths[g.rank % 2], spread="node")(g)  # noqa: E731
        report = the_one(on_ranks(call, *hosts))
        [finding] = report.findings
        assert (finding.host, finding.path) == ("n2", paths[1] / "acts000002.bin")
        assert f"{paths[1]}/acts000002.bin on n2\n" in f"{report}\n"
        assert report.n_files == 2 * shardproof.validate(paths[0]).n_files
        assert report.notes == ("each host has checked its own directory: n1; n2",)
        assert report.to_dict()["findings"][0]["host"] == "n2"
        assert report.broken() == BrokenFiles(("acts000002.bin",), (2,))

    def test_different_manifests_are_an_error(self, make_shards_dir) -> None:
        paths = [make_shards_dir(3), make_shards_dir(4)]
        call = lambda g: validate(paths[g.rank], spread="node")(g)  # noqa: E731
        assert ", manifest " in str(the_one(on_ranks(call, "n1", "n2")))

    def test_ranks_of_one_host_must_see_one_directory(self, make_shards_dir) -> None:
        paths = [make_shards_dir(3), make_shards_dir(3)]
        call = lambda g: validate(paths[g.rank], spread="node")(g)  # noqa: E731
        assert "see different directories" in str(the_one(on_ranks(call, "n1", "n1")))

    def test_of_very_many_findings_the_others_are_counted(self, make_shards_dir, monkeypatch):
        from shardproof.distributed import _checks

        monkeypatch.setattr(_checks, "MOST_KEPT", 3)
        path = make_shards_dir(4, missing=[1, 2])
        report = the_one(on_ranks(validate(path, spread="node"), "n1", "n2"))
        assert (len(report.findings), report.n_findings) == (3, 4)
        assert report.broken().names == ("acts000001.bin", "acts000002.bin")


def test_one_rank_checks_and_the_others_look_at_nothing(make_shards_dir) -> None:
    path = make_shards_dir(5, missing=[1])
    call = lambda g: validate(path if g.rank == 0 else "/gone", spread="one")(g)  # noqa: E731
    assert the_one(on_ranks(call, *SHARED)) == shardproof.validate(path)


def test_ranks_that_ask_for_something_else_are_named(make_shards_dir) -> None:
    path = make_shards_dir(3)
    call = lambda g: validate(path, level="valid" if g.rank else "present")(g)  # noqa: E731
    error = the_one(on_ranks(call, *SHARED))
    assert "rank 0 on node1: validate(level='present', spread='all')" in str(error)
    valid = "rank 1 on node1; rank 2 on node2: validate(level='valid', spread='all')"
    assert valid in str(error)


def test_another_version_is_named(make_shards_dir, tmp_path) -> None:
    path = make_shards_dir(3)

    def call(group: PipeGroup) -> None:
        shardproof.__version__ = "9.9" if group.rank == 1 else "1.0"
        try:
            validate(path)(group)
        except RankError as error:
            (tmp_path / f"{group.rank}").write_text(f"{error}")

    for pid in in_processes(call, *SHARED):
        os.waitpid(pid, 0)
    texts = [(tmp_path / f"{rank}").read_text() for rank in range(3)]
    assert (
        texts[0] == texts[2] == "expected shardproof 1.0 on each rank, as here; rank 1 runs '9.9'"
    )
    assert texts[1] == "expected shardproof 9.9 on each rank, as here; rank 0 runs '1.0'"


def test_what_is_no_message_ends_the_call(make_shards_dir) -> None:
    path = make_shards_dir(3)

    def call(group: PipeGroup) -> Any:
        if group.rank == 1:
            return group.send(b"\x80\x04garbage", 0)
        return validate(path)(group)

    found = on_ranks(call, *SHARED)
    assert "rank 1 runs " in str(found[0])
    assert str(found[2]) == str(found[0])
    assert type(found[0]) is type(found[2]) is RankError


class TestSilence:
    def test_a_rank_that_never_calls_is_named(self, make_shards_dir) -> None:
        path, is_over = make_shards_dir(3), threading.Event()

        def call(group: PipeGroup) -> Any:
            if group.rank == 1:
                return is_over.wait(30)
            try:
                return validate(path, timeout=0.5)(group)
            finally:
                if group.rank == 0:
                    is_over.set()

        found = on_ranks(call, *SHARED)
        assert {str(found[0]), str(found[2])} == {"rank 1 has not answered for 0.5 s"}

    def test_so_is_rank_0(self, make_shards_dir) -> None:
        path = make_shards_dir(3)
        call = lambda g: validate(path, timeout=0.5)(g) if g.rank else None  # noqa: E731
        found = on_ranks(call, *SHARED)
        assert str(found[1]) == str(found[2]) == "rank 0 has not answered for 0.75 s"

    def test_a_check_may_take_longer_than_the_timeout(self, make_shards_dir, monkeypatch) -> None:
        path, real = make_shards_dir(3), checks.look_at_all

        def look(*args: Any) -> Any:
            time.sleep(1.2)
            return real(*args)

        monkeypatch.setattr(checks, "look_at_all", look)
        assert the_one(on_ranks(validate(path, timeout=0.5, workers=1), "n", "n")).ok

    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
    @pytest.mark.parametrize("at", ["before", "during"])
    def test_a_rank_that_is_killed_or_stopped_is_named(
        self, make_shards_dir, end: signal.Signals, at: str, tmp_path
    ) -> None:
        path = make_shards_dir(30)

        def call(group: PipeGroup) -> None:
            if group.rank == 1 and at == "before":
                os.kill(os.getpid(), end)
            if group.rank == 1:
                real = checks.look_at_all
                checks.look_at_all = lambda *_: os.kill(os.getpid(), end) or real(*_)
            try:
                validate(path, timeout=1)(group)
            except RankError as error:
                (tmp_path / f"{group.rank}").write_text(f"{error}")

        pids = in_processes(call, *SHARED)
        for pid in pids[::2]:
            os.waitpid(pid, 0)
        os.kill(pids[1], signal.SIGKILL)
        os.waitpid(pids[1], 0)
        text, other = ((tmp_path / f"{rank}").read_text() for rank in (0, 2))
        where = " on node1" if at == "during" else ""
        reason = "has not answered for 1 s"
        if end == signal.SIGKILL:  # it is sent to, or heard
            reason = "has been lost: (BrokenPipe|ConnectionReset|EOF)Error"
        assert re.match(f"rank 1{where} {reason}", text), text
        assert other == text


def test_an_error_whose_class_is_private_is_one_of_its_public_class(make_shards_dir) -> None:
    path = make_shards_dir(3)
    (path / "shards.json").write_text('[{"name": "../x", "n_examples": 1}]')
    error = the_one(on_ranks(validate(path), *SHARED))
    with pytest.raises(ManifestError) as alone:
        shardproof.validate(path)
    assert (type(error), str(error)) == (ManifestError, str(alone.value))


class TestOtherCalls:
    def test_ranks_whose_files_are_spread_otherwise(self, make_shards_dir) -> None:
        path, spreads = make_shards_dir(3), ["all", "one"]
        for each in (spreads, spreads[::-1]):
            call = lambda g: validate(path, spread=each[g.rank])(g)  # noqa: B023, E731
            error = the_one(on_ranks(call, "n1", "n2"))
            assert type(error) is RankError
            assert f"rank 1 on n2: validate(spread={each[1]!r}" in str(error)

    def test_ranks_that_call_something_else(self, make_shards_dir, tmp_path) -> None:
        path = make_shards_dir(3)

        def call(group: PipeGroup) -> Any:
            if group.rank:
                return shardproof.latest_checkpoint(tmp_path, group=group)
            return validate(path)(group)

        error = the_one(on_ranks(call, "n1", "n2"))
        assert type(error) is RankError
        assert "rank 1 on n2: latest_checkpoint" in str(error)

    def test_no_password_of_an_argument_is_shown(self, make_shards_dir) -> None:
        path = make_shards_dir(3)

        def call(group: PipeGroup) -> Any:
            level = "valid" if group.rank else "present"
            return validate(path, level=level, against="https://me:word@localhost:1/x")(group)

        text = str(the_one(on_ranks(call, "n1", "n2")))
        assert "word" not in text


def test_ranks_by_whose_paths_one_directory_is_two(make_shards_dir, monkeypatch) -> None:
    """As two mounts of it are: findings have one path."""
    path = make_shards_dir(3, missing=[1])
    real = formats.locate

    def locate(where: Any) -> Any:
        slash, found = "/" * os.fspath(where).startswith("//"), real(where)
        return found._replace(path=slash + found.path, root=slash + found.root)

    monkeypatch.setattr(formats, "locate", locate)
    call = lambda g: validate(f"/{path}" if g.rank else path)(g)  # noqa: E731
    error = the_one(on_ranks(call, "n1", "n2"))
    assert type(error) is RankError
    assert f"rank 1 on n2: '/{path}' (" in str(error)


class TestAddresses:
    @pytest.fixture
    def address(self, make_shards_dir) -> Iterator[str]:
        with in_memory(make_shards_dir(5, missing=[1], truncated=[2])) as address:
            yield address

    @pytest.mark.parametrize("level", ["complete", "valid"])
    def test_rank_0_checks_what_is_at_one(self, address, level: str) -> None:
        report = the_one(on_ranks(validate(address, spread="one", level=level), *SHARED))
        assert report == shardproof.validate(address, level=level)
        assert str(report.path) == address
        assert str(report.findings[0].path) == f"{address}/acts000001.bin"

    @pytest.mark.parametrize("spread", ["all", "node"])
    def test_no_other_rank_does(self, address, spread: str) -> None:
        error = the_one(on_ranks(validate(address, spread=spread), *SHARED))
        assert type(error) is ValueError
        assert str(error) == 'spread: expected "one" for an address'

"""Files are checked by the workers of an executor: the same report, whatever happens to them."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import shardproof
from shardproof import FindingKind, ManifestError, SealError, ShardValidationError
from shardproof._base.digest import Digest
from shardproof._base.mounts import LOCAL, mount_of
from shardproof._base.work import apart
from shardproof.checks import FileRead, _engine, check, journal
from shardproof.manifest import ExpectedFile, Manifest
from tests.formats.looking import sampled
from tests.goldens import GOLDENS
from tests.helpers import ROOT
from tests.helpers.descriptors import needs_proc
from tests.helpers.engine_faults import Deadly, context, recorded, shards
from tests.helpers.waiting import until

ENDS = "that it ends each process that reads it"


def looked(manifest: Manifest, executor: object, level: str = "complete", **how: object):
    return apart(lambda _: check(manifest, level=level, executor=executor, **how))


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, context()) as pool:
        yield pool


def children() -> list[int]:
    """Processes of ours whose parent this one is."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
            is_own = b"tasks.peek" in Path("/proc", pid, "cmdline").read_bytes()
            if int(stat[1]) == os.getpid() and is_own:
                found.append(int(pid))
    return found


class Duck:
    """An executor of nobody's making: all that is asked for is ``submit``."""

    def __init__(self) -> None:
        self.n_sent, self.n_open, self.most, self.sizes = 0, 0, 0, list[int]()

    def submit(self, work, /, *args):
        self.n_open += 1
        self.most = max(self.most, self.n_open)
        self.sizes.append(len(work.files))
        future: Future[object] = Future()
        future.add_done_callback(lambda _: setattr(self, "n_open", self.n_open - 1))
        threading.Thread(target=lambda: future.set_result(work(*args))).start()
        return future


# The same report


@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_the_report_is_that_of_threads(tmp_path: Path, pool, level) -> None:
    for i in range(200):
        np.save(tmp_path / f"{i:03}.npy", np.arange(i))
    shardproof.seal(tmp_path)
    (tmp_path / "003.npy").unlink()
    (tmp_path / "150.npy").write_bytes(b"")
    (tmp_path / "077.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "SHA256SUMS").write_text((tmp_path / "SHA256SUMS").read_text() + f"{'0' * 64}  x\n")
    by_threads = shardproof.validate(tmp_path, level=level)
    assert by_threads.n_findings >= 3
    with ThreadPoolExecutor(3) as threads:
        for executor in (threads, pool, Duck()):
            report = shardproof.validate(tmp_path, level=level, executor=executor)
            assert (report, str(report)) == (by_threads, str(by_threads))


@pytest.mark.slow
@pytest.mark.parametrize("one", sampled(GOLDENS))
def test_what_each_format_asks_can_be_sent(one, pool, tmp_path: Path) -> None:
    path = one.copy(tmp_path / one.name)
    expected = shardproof.validate(path, level="valid")
    assert shardproof.validate(path, level="valid", executor=pool) == expected


def test_progress_is_told_as_results_come(pool, tmp_path: Path) -> None:
    told = []
    np.save(tmp_path / "a.npy", np.arange(3))
    np.save(tmp_path / "b.npy", np.arange(3))
    shardproof.validate(tmp_path, executor=pool, progress=lambda *each: told.append(each))
    assert told[-1] == (2, 2)


def test_a_slow_file_keeps_back_no_progress_but_the_order(tmp_path: Path) -> None:
    gate, done = threading.Event(), []

    def slow(file: ExpectedFile, fd: int, size: int) -> None:
        if file.name == "000000":
            gate.wait(60)

    manifest = shards(tmp_path / "x", n=100)
    (tmp_path / "x/000001").unlink()
    (tmp_path / "x/000099").unlink()
    object.__setattr__(manifest, "probe", slow)
    with ThreadPoolExecutor(2) as executor:

        def work(_: object):
            engine = _engine.Engine(
                executor, _engine.Question(str(manifest.root), "complete", slow, None), fd, files
            )
            n_done = 0
            for n_more, said in engine.run([]):
                n_done += n_more
                done.extend(each.path.name for each in said)
                if n_done == 99:
                    assert not done
                    gate.set()

        files = manifest.files
        fd = os.open(manifest.root, os.O_RDONLY)
        apart(work)
        os.close(fd)
    assert done == ["000001", "000099"]


def test_batches_grow(tmp_path: Path) -> None:
    duck = Duck()
    assert looked(shards(tmp_path / "x", n=5000), duck).ok
    assert max(duck.sizes) > 30
    assert duck.sizes[-1] == 1  # so that all workers end at once
    assert duck.sizes[0] == 1
    assert duck.n_open == 0


@pytest.mark.parametrize(("n_workers", "fewest", "most"), [(2, 4, 16), (50, 50, 200)])
def test_as_many_are_sent_as_keep_all_workers_busy(
    tmp_path: Path, monkeypatch, n_workers, fewest, most
) -> None:
    monkeypatch.setattr(_engine, "_SECONDS", 0.0)  # one file a batch
    manifest, n_open, seen = shards(tmp_path / "x", n=12 * n_workers + 120), [0], []
    object.__setattr__(manifest, "probe", lambda *_: time.sleep(0.0008 * n_workers))

    class Counting(ThreadPoolExecutor):
        def submit(self, work, /, *args, **kwargs):
            n_open[0] += 1
            seen.append(n_open[0])
            future = super().submit(work, *args, **kwargs)
            future.add_done_callback(lambda _: n_open.__setitem__(0, n_open[0] - 1))
            return future

    with Counting(n_workers) as executor:
        assert looked(manifest, executor).ok
    assert fewest <= max(seen[len(seen) // 2 :]) <= most


def test_an_engine_far_away_gets_as_many_as_are_on_their_way(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_engine, "_SECONDS", 0.0)  # one file a batch
    n_open, seen = [0], []

    class Far:
        def submit(self, work, /):
            n_open[0] += 1
            seen.append(n_open[0])
            future: Future[object] = Future()
            future.add_done_callback(lambda _: n_open.__setitem__(0, n_open[0] - 1))
            threading.Timer(0.1, lambda: future.set_result(work())).start()
            return future

    manifest = shards(tmp_path / "x", n=250)
    object.__setattr__(manifest, "probe", lambda *_: time.sleep(0.02))
    assert looked(manifest, Far()).ok
    assert max(seen[len(seen) // 2 :]) >= 32


def test_what_takes_long_is_given_back(tmp_path: Path, monkeypatch) -> None:
    """A batch that was sized by quick files, and has slow ones, goes on elsewhere."""
    monkeypatch.setattr(_engine, "_MOST_SECONDS", 0.01)

    def slow(file: ExpectedFile, fd: int, size: int) -> None:
        if "004000" <= file.name < "004200":
            time.sleep(0.002)

    manifest, duck = shards(tmp_path / "x", n=5000), Duck()
    object.__setattr__(manifest, "probe", slow)
    assert looked(manifest, duck).n_proven == 5000
    assert sum(duck.sizes) > 5000  # some were sent twice


# Lost workers


def test_the_file_that_kills_is_found_and_all_others_are_checked(tmp_path: Path) -> None:
    with recorded("process pool", "a file kills whoever reads it") as saw:
        manifest = shards(tmp_path / "x", "SIGKILL", deadly=(7, 123))
        (tmp_path / "x/000200").unlink()
        with ProcessPoolExecutor(2, context()) as pool:
            report = looked(manifest, pool)
        found = {each.path.name: each for each in report.findings}
        saw += [f"{len(found) - 1} could not be checked, all others are", report.notes[-1]]
    assert [*found] == ["000007-deadly", "000123-deadly", "000200"]
    deadly = found["000007-deadly"]
    assert deadly.kind is FindingKind.UNREADABLE
    assert deadly.found == f"{ENDS} (SIGKILL: likely out of memory, or over a limit)"
    assert not deadly.conclusive
    assert (report.exit_code, report.n_unseen, report.n_files) == (3, 2, 300)
    assert report.broken().names == ("000200",)
    assert report.notes[-1].startswith("the executor lost workers (BrokenProcessPool: ")
    assert report.notes[-1].endswith(" of its batches and all that was left")
    assert not children()


@pytest.mark.parametrize(
    ("how", "reason"),
    [("exit", "exit status 3"), ("SIGSEGV", "SIGSEGV"), ("MemoryError", "no memory was left")],
)
def test_the_reason_is_told(tmp_path: Path, how: str, reason: str) -> None:
    manifest = shards(tmp_path / "x", how, n=20, deadly=(7,))
    with recorded("process pool", f"a worker ends: {how}") as saw:
        with ProcessPoolExecutor(1, context()) as pool:
            [finding] = looked(manifest, pool).findings
        saw.append(finding.found)
    assert finding.found == f"{ENDS} ({reason})"


@needs_proc  # by which a killed worker is seen to be gone
@pytest.mark.parametrize("when", ["before the call", "midway"])
def test_killed_workers_are_replaced_by_processes_of_our_own(tmp_path: Path, when: str) -> None:
    manifest = shards(tmp_path / "x", n=2000)
    (tmp_path / "x/001999").unlink()

    def kill(*_: object) -> None:
        while pool._processes and any(map(is_running, [*pool._processes])):
            for pid in pool._processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    with recorded("process pool", f"all workers are killed {when}") as saw:
        with ProcessPoolExecutor(2, context()) as pool:
            pool.submit(abs, 1).result()
            if when == "before the call":
                kill()
            told = list[object]()
            path = manifest.root

            def tell(*done: object) -> None:
                if not told:
                    kill()
                told.append(done)

            report = apart(
                lambda _: check(manifest, level="complete", executor=pool, is_told=True), tell
            )
        saw += [report.summary, *report.notes]
    assert [each.path for each in report.findings] == [path / "001999"]
    assert report.notes
    assert " and all that was left" in report.notes[0]
    assert not children()


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_stopped_workers_are_given_up(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_engine, "_PATIENCE", (60.0, 0.5))
    manifest = shards(tmp_path / "x", n=2000)
    pool = ProcessPoolExecutor(2, context())
    pool.submit(abs, 1).result()
    stopped = []

    def stop(*_: object) -> None:
        if not stopped:
            stopped.extend(pool._processes)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    with recorded("process pool", "all workers are stopped (patience of 0.5 s)") as saw:
        report = apart(
            lambda _: check(manifest, level="complete", executor=pool, is_told=True), stop
        )
        saw += [report.summary, *report.notes]
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    pool.shutdown()
    assert report.ok
    assert "no answer for " in report.notes[0]


def test_a_large_file_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_engine, "_PATIENCE", (0.05, 0.05))
    monkeypatch.setattr(_engine, "_SLOWEST", 10.0)  # so 64 bytes may take 6.4 s
    manifest = shards(tmp_path / "x", n=3)
    object.__setattr__(manifest, "prove", lambda *_: time.sleep(0.3) or True)
    with ThreadPoolExecutor(2) as pool:
        assert looked(manifest, pool, "valid").notes == ()


def test_an_error_of_a_probe_is_raised_as_by_threads(tmp_path: Path, pool) -> None:
    manifest = shards(tmp_path / "x", "raises", n=50, deadly=(7,))
    with recorded("process pool", "a probe raises") as saw:
        with pytest.raises(RuntimeError, match="a probe with a bug") as caught:
            looked(manifest, pool)
        saw.append(repr(caught.value))
    manifest = shards(tmp_path / "y", "raises its own", n=50, deadly=(7,))
    with pytest.raises(RuntimeError, match="OthersError: a b"):
        looked(manifest, pool)
    assert pool.submit(abs, -1).result() == 1


def test_what_can_not_be_sent_is_named(tmp_path: Path, pool) -> None:
    manifest = shards(tmp_path / "x", n=5)
    object.__setattr__(manifest, "probe", lambda *_: None)
    with pytest.raises(ValueError, match=r"^executor: its workers can't take .*<lambda>") as caught:
        looked(manifest, pool)
    assert "\n" not in str(caught.value)
    with ThreadPoolExecutor(1) as threads:
        assert looked(manifest, threads).ok


OF_A_SCRIPT = """
import sys
from concurrent.futures import BrokenExecutor
from shardproof._base.work import apart
from shardproof.checks import check
from tests.helpers.engine_faults import shards

def probe(*_):
    return None

class Broken:
    def submit(self, work):
        raise BrokenExecutor("gone")

manifest = shards(sys.argv[1], n=5)
object.__setattr__(manifest, "probe", probe)
apart(lambda _: check(manifest, level="complete", executor=Broken()))
"""


def test_a_pool_that_breaks_as_it_is_asked_is_lost(tmp_path: Path) -> None:
    """Of CPython's, `submit` may then find a pipe closed that it would give to a new worker."""

    class Breaking:
        def submit(self, work, /):
            raise OSError("handle is closed")

    notes = looked(shards(tmp_path / "x", n=5), Breaking()).notes
    assert notes[-1].startswith("the executor lost workers (OSError: handle is closed); checked by")


def test_a_probe_of_the_callers_script_is_named_too(tmp_path: Path) -> None:
    """Fresh processes know nothing of the script, and don't run it anew."""
    command = [sys.executable, "-c", OF_A_SCRIPT, tmp_path / "x"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ValueError: executor: its workers can't take [<function probe at ")
    assert done.stderr.count("Traceback") == 2  # of pickle, and its consequence


def test_where_no_process_can_be_begun_no_file_is_accused(tmp_path: Path, monkeypatch) -> None:
    """Users may have only so many processes (setrlimit(2)): then nothing could be looked at."""

    def no_more(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", no_more)
    with pytest.raises(BlockingIOError):
        looked(shards(tmp_path / "x", n=5), Broken())


def test_an_executor_that_is_shut_down_is_refused(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        looked(shards(tmp_path / "x", n=5), pool)


def test_a_worker_that_was_interrupted_ends_the_check(tmp_path: Path) -> None:
    manifest = shards(tmp_path / "x", "SIGINT", n=5, deadly=(1,))
    with ProcessPoolExecutor(1, context()) as pool, pytest.raises(KeyboardInterrupt):
        looked(manifest, pool)


# Another host

ELSEWHERE = """
import os, pickle, sys
import socket
socket.sethostname("node17")
sys.path[:] = pickle.load(sys.stdin.buffer)
pickle.dump(pickle.load(sys.stdin.buffer)(), sys.stdout.buffer)
"""


class Elsewhere:
    """Does the work on what takes itself for another host, after a command there."""

    def __init__(self, command: str) -> None:
        import pickle

        self.command, self.dumps, self.loads = command, pickle.dumps, pickle.loads

    def submit(self, work):
        future: Future[object] = Future()
        script = f"{self.command} && exec {sys.executable} -c '{ELSEWHERE}'"
        command = ["unshare", "--uts", "--mount", "--pid", "--fork", "sh", "-c", script]
        if os.geteuid():
            command[1:1] = ["--user", "--map-root-user"]
        data = self.dumps(sys.path) + self.dumps(work)
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
        future.set_result(self.loads(done.stdout))
        return future


def test_what_lies_in_the_current_directory_is_not_imported(tmp_path: Path, monkeypatch) -> None:
    manifest = shards(tmp_path / "x", n=3)
    (tmp_path / "pickle.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert looked(manifest, Broken()).findings == ()


@pytest.mark.parametrize("how", ["print('welcome')", "import os; os._exit(5)"])
def test_what_a_site_does_as_python_begins_accuses_no_file(tmp_path, monkeypatch, how) -> None:
    manifest = shards(tmp_path / "x", n=3)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(how)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/site")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    if "exit" in how:
        with pytest.raises(ChildProcessError, match="own did not begin: exit status 5"):
            looked(manifest, Broken())
    else:
        assert looked(manifest, Broken()).findings == ()


@pytest.fixture
def elsewhere() -> type[Elsewhere]:
    can = subprocess.run(["unshare", "-u", "-m", "-p", "-f", "true"], check=False).returncode == 0
    if not can and os.geteuid() == 0:
        pytest.skip("unshare(1) is not permitted here")
    return Elsewhere


@needs_proc  # by which a process of other namespaces is told from one of this host
def test_a_host_that_sees_no_such_directory(tmp_path: Path, elsewhere) -> None:
    (tmp_path / "mnt").mkdir()
    manifest = shards(tmp_path / "mnt/x", n=3)
    with recorded("another host", "it sees no such directory") as saw:
        with pytest.raises(ManifestError) as caught:
            looked(manifest, elsewhere(f"mount -t tmpfs none {tmp_path}/mnt"))
        saw.append(caught.value)
    here = os.uname().nodename
    expected = f"on 'node17', unlike on '{here}' (this one): there is no such directory: "
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


@needs_proc
@pytest.mark.parametrize("of_own", ["directory", "disk"])
def test_a_host_that_sees_a_copy_of_its_own(tmp_path: Path, elsewhere, of_own: str) -> None:
    """Whose files would be taken for those of the caller; on a new disk of the same inode, too."""
    manifest, copy = shards(tmp_path / "x", n=3), tmp_path / "copy"
    shutil.copytree(tmp_path / "x", copy)
    (tmp_path / "x/000000").unlink()
    command, (kind, *_) = f"mount --bind {copy} {tmp_path}/x", mount_of(os.fspath(tmp_path))
    if of_own == "disk":
        if kind not in LOCAL - {"unknown"}:
            pytest.skip(f"other machines may see {kind}")
        (tmp_path / "boot_id").write_text("that of another machine\n")
        command = f"mount --bind {tmp_path}/boot_id /proc/sys/kernel/random/boot_id"
    where = f"on 'node17', unlike on '{os.uname().nodename}' (this one)"
    with pytest.raises(ManifestError) as caught:
        looked(manifest, elsewhere(command))
    assert f"{where}: there is another directory: " in str(caught.value)


@needs_proc
def test_a_host_that_sees_the_same_directory(tmp_path: Path, elsewhere) -> None:
    assert looked(shards(tmp_path / "x", n=3), elsewhere("true")).findings == ()


def test_a_directory_that_is_replaced_in_the_middle(tmp_path: Path) -> None:
    manifest = shards(tmp_path / "x", n=3)

    class Late(ThreadPoolExecutor):
        def submit(self, work, /, *args):
            if not (tmp_path / "old").exists():
                (tmp_path / "x").rename(tmp_path / "old")
                shards(tmp_path / "x", n=3)
            return super().submit(work, *args)

    with Late(1) as executor, pytest.raises(OSError, match="replaced during the check"):
        looked(manifest, executor)


# Interrupts

INTERRUPTED = """
import os, random, signal, sys, threading, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import shardproof
from tests.helpers.engine_faults import context

kind, path, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
pool = ThreadPoolExecutor(2) if kind == "threads" else ProcessPoolExecutor(2, context())
assert pool.submit(abs, -1).result() == 1
begin = time.monotonic()
shardproof.validate(path, level="complete", executor=pool)
whole = time.monotonic() - begin
rang = 0.0

def ring(*_):
    global rang
    rang = time.monotonic()
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ring)
moments = random.Random(seed)
late, n = [], 0
if kind == "broken":
    for pid in pool._processes:
        os.kill(pid, signal.SIGKILL)
while n < TIMES:
    try:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-4, max(whole, 0.05)))
        while True:
            shardproof.validate(path, level="complete", executor=pool)
    except KeyboardInterrupt:
        late.append(time.monotonic() - rang)
        n += 1
    if kind != "broken":
        assert pool.submit(abs, -1).result(timeout=60) == 1
    names = [t.name for t in threading.enumerate() if t.name.startswith("shardproof")]
    assert not names, names
print(n, max(late))
"""


def interrupted(kind: str, path: Path, times: int, seed: int = 0) -> tuple[int, float]:
    code = INTERRUPTED.replace("TIMES", str(times))
    command = [sys.executable, "-c", code, kind, str(path), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    n, latest = done.stdout.split()
    return int(n), float(latest)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes", "broken"])
def test_an_interrupt_at_any_moment_ends_the_call_and_breaks_no_pool(tmp_path, kind: str) -> None:
    for i in range(400):
        np.save(tmp_path / f"{i:03}.npy", np.arange(3))
    engine = {"threads": "thread pool", "processes": "process pool", "broken": "broken pool"}[kind]
    with recorded(engine, "Ctrl-C at 12 moments") as saw:
        n, latest = interrupted(kind, tmp_path, 12)
        saw += ["KeyboardInterrupt, the latest", latest]
    assert n == 12
    assert latest < 2.0  # ten times what is promised, since other tests run beside it


def test_an_interrupt_cancels_what_is_sent_and_waits_for_nothing(tmp_path: Path) -> None:
    """Both workers are at a file that takes a minute."""
    gate = threading.Event()
    manifest = shards(tmp_path / "x", n=100)
    object.__setattr__(manifest, "probe", lambda *_: gate.wait(60) and None)
    sent = []

    class Spy(ThreadPoolExecutor):
        def submit(self, work, /, *args):
            sent.append(super().submit(work, *args))
            return sent[-1]

    pool = Spy(2)
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, 2))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        looked(manifest, pool)
    assert not gate.is_set()
    assert sum(future.cancelled() for future in sent) == len(sent) - 2
    gate.set()
    pool.shutdown()


def test_an_interrupt_ends_processes_of_our_own_at_a_long_file(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    manifest = shards(tmp_path / "x", f"sleeps {begun} {ended}", n=9, deadly=(3,))

    def interrupt() -> None:
        until(begun.exists)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        looked(manifest, Broken())
    thread.join()
    assert not children()
    assert not ended.exists()


def test_cancellation_ends_a_repair(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(3):
        np.save(source / f"{i}.npy", np.arange(9))
    shutil.copytree(source, tmp_path / "x")
    cancellation, gate = shardproof.fetching.Cancellation(), threading.Event()

    class Held(ThreadPoolExecutor):
        def submit(self, work, /, *args):
            cancellation.cancel()
            return super().submit(gate.wait, 60)

    executor = Held(1)
    with pytest.raises(shardproof.FetchError, match="stopped"):
        shardproof.repair(tmp_path / "x", str(source), executor=executor, cancellation=cancellation)
    gate.set()
    executor.shutdown()


# Seal and repair


def test_a_seal_is_the_same(tmp_path: Path, pool) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(40):
            np.save(tmp_path / name / f"{i:03}.npy", np.arange(i))
    by_threads = shardproof.seal(tmp_path / "a")
    sealed = shardproof.seal(tmp_path / "b", executor=pool)
    assert sealed.added == by_threads.added
    lists = [(tmp_path / name / "SHA256SUMS").read_text() for name in ("a", "b")]
    assert lists[0] == lists[1]
    journals = [(tmp_path / name / ".SHA256SUMS.journal").read_text() for name in ("a", "b")]
    assert [journal.count("\n") for journal in journals] == [1, 1]  # too new to be relied on
    with pytest.raises(ValueError, match="found both"):
        shardproof.seal(tmp_path / "b", update=True, workers=1, executor=pool)


class Changing(ThreadPoolExecutor):
    """Changes a file between two reads of it, as its writer might."""

    def __init__(self, path: Path) -> None:
        super().__init__(1)
        self.path = path


def test_a_file_that_changes_while_it_is_read_is_not_sealed(tmp_path: Path, monkeypatch) -> None:
    from shardproof._base import digest

    (tmp_path / "a").write_bytes(b"x" * 100)
    real = digest.each_of_file

    def each_of_file(*args, **keywords):
        found = real(*args, **keywords)
        (tmp_path / "a").write_bytes(b"y" * 100)
        return found

    monkeypatch.setattr(digest, "each_of_file", each_of_file)
    with ThreadPoolExecutor(1) as executor, pytest.raises(SealError, match="it changed while"):
        shardproof.seal(tmp_path, executor=executor)
    assert not (tmp_path / "SHA256SUMS").exists()


def test_a_killed_seal_goes_on_over_an_executor(tmp_path: Path, pool, monkeypatch) -> None:
    """The caller has the journal, and notes what workers have read as it comes."""
    for i in range(50):
        np.save(tmp_path / f"{i:03}.npy", np.arange(9))
        os.utime(tmp_path / f"{i:03}.npy", (1, 1))
    monkeypatch.setattr("shardproof.checks._proofs.SETTLED_SECONDS", -60.0)

    def stop(n_done: int, n_all: int) -> None:
        if n_all == 50 and n_done >= 20 and (tmp_path / ".SHA256SUMS.journal").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shardproof.seal(tmp_path, executor=pool, progress=stop)
    assert not (tmp_path / "SHA256SUMS").exists()
    sealed = shardproof.seal(tmp_path, executor=pool)
    assert sealed.n_resumed > 0
    assert shardproof.validate(tmp_path, level="valid", executor=pool).n_proven == 50
    quick = shardproof.validate(tmp_path, level="valid", executor=pool, quick=True)
    assert (quick.n_unread, quick.ok) == (50, True)


def test_what_counts_is_when_a_file_was_read_not_when_that_is_noted(tmp_path: Path) -> None:
    """It comes back later from a worker; meanwhile the file may have changed, its time not."""
    (tmp_path / "a").write_bytes(b"a")
    long_ago = time.time() - 60
    os.utime(tmp_path / "a", (long_ago, long_ago))
    status = (tmp_path / "a").stat()
    found = {("sha256", 0): Digest("sha256", "0" * 64)}
    changed = status.st_ctime  # which no one can set
    fd = os.open(tmp_path, os.O_RDONLY)
    with journal(str(tmp_path), "SHA256SUMS", dir_fd=fd) as note:
        note(FileRead("a", found, status, status, changed + 0.1, False))
        note(FileRead("b", found, status, status, changed + 60, False))
    os.close(fd)
    lines = (tmp_path / ".SHA256SUMS.journal").read_text().split()
    assert [line[:5] for line in lines] == ['["b",']


def test_a_seal_sends_no_more_of_checksums_than_a_batch_needs(tmp_path: Path) -> None:
    from shardproof.sealing._contents import _Proves

    proves = _Proves({str(i): [] for i in range(1000)})
    question = _engine.Question("/", "valid", None, proves, proofs={"1": None, "2": None})
    narrowed = _engine._narrowed(question, {"1", "7"})
    assert type(narrowed.prove) is _Proves
    assert (narrowed.prove.keys(), narrowed.proofs.keys()) == ({"1", "7"}, {"1"})


def test_a_seal_is_refused_where_a_file_could_not_be_checked(tmp_path: Path, monkeypatch) -> None:
    np.save(tmp_path / "a.npy", np.arange(9))
    monkeypatch.setattr(_engine, "_Task", Deadly)
    with pytest.raises(ShardValidationError) as caught:
        shardproof.seal(tmp_path, executor=Broken())
    assert caught.value.exit_code == 3
    assert not (tmp_path / "SHA256SUMS").exists()


class Broken:
    """An executor whose workers are gone before they begin."""

    def submit(self, work, /, *args):
        from concurrent.futures import BrokenExecutor

        raise BrokenExecutor("gone")


def test_a_repair_looks_over_the_executor(tmp_path: Path, pool) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(9):
        np.save(source / f"{i}.npy", np.arange(9))
    shardproof.seal(source)
    shutil.copytree(source, tmp_path / "x")
    (tmp_path / "x/3.npy").unlink()
    (tmp_path / "x/5.npy").write_bytes(b"x" * 200)
    done = shardproof.repair(tmp_path / "x", str(source), executor=pool)
    assert (done.ok, done.repaired) == (True, ("5.npy", "3.npy"))
    assert done.report.n_proven == 9


# What is accepted


@pytest.mark.parametrize("executor", [3, "pool", object()])
def test_what_is_no_executor_is_refused(tmp_path: Path, executor: object) -> None:
    for verb in (shardproof.validate, shardproof.seal):
        with pytest.raises(TypeError, match="executor: expected "):
            verb(tmp_path, executor=executor)

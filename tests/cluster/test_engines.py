"""Dask, MPI, loky and joblib: the same report, and what is seen where their workers are lost."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import loky
import numpy as np
import pytest
from distributed import Client, LocalCluster

import shardproof
from shardproof._base.work import apart
from shardproof.checks import _engine, check
from shardproof.manifest import Manifest
from tests.helpers import ROOT
from tests.helpers.engine_faults import recorded, shards
from tests.helpers.waiting import until as wait_until

SHARDPROOF = [sys.executable, "-m", "shardproof"]
ENDS = "that it ends each process that reads it"


def looked(manifest: Manifest, executor: object, tell: Callable[..., object] | None = None):
    def work(_: object):
        return check(manifest, level="complete", executor=executor, is_told=True)

    return apart(work, tell)


def once(act: Callable[[], object]) -> Callable[..., None]:
    """Return what does something when it is first called."""
    done = []

    def tell(*_: object) -> None:
        if not done:
            done.append(act())

    return tell


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def npy_files(root: Path, n: int) -> Path:
    root.mkdir()
    for i in range(n):
        np.save(root / f"{i:05}.npy", np.arange(i % 7))
    return root


# loky, and joblib's


@pytest.fixture(params=["loky", "joblib"])
def reusable(request) -> Iterator[object]:
    made = loky if request.param == "loky" else joblib.externals.loky
    executor = made.get_reusable_executor(max_workers=2)
    yield executor
    executor.shutdown(kill_workers=True)


def test_loky(reusable, tmp_path: Path) -> None:
    path = npy_files(tmp_path / "x", 300)
    assert shardproof.validate(path, executor=reusable, level="valid").n_files == 300
    assert shardproof.seal(path, executor=reusable).n_files == 300
    (path / "00007.npy").unlink()
    by_threads = shardproof.validate(path, level="valid")
    assert shardproof.validate(path, executor=reusable, level="valid") == by_threads


def test_loky_whose_workers_are_killed(reusable, tmp_path: Path) -> None:
    manifest = shards(tmp_path / "x", n=3000)
    reusable.submit(abs, 1).result()
    with recorded("loky", "all workers are killed midway") as saw:
        report = looked(manifest, reusable, once(lambda: kill(*reusable._processes)))
        saw += [report.summary, *report.notes]
    assert report.ok
    assert re.match(r"the executor lost workers \((Terminated|Broken)", report.notes[0])


def test_loky_and_a_file_that_kills(reusable, tmp_path: Path) -> None:
    manifest = shards(tmp_path / "x", n=300, deadly=(77,))
    with recorded("loky", "a file kills whoever reads it") as saw:
        [finding] = looked(manifest, reusable).findings
        saw.append(finding.found)
    assert finding.found.startswith(f"{ENDS} (SIGKILL")
    assert not finding.conclusive


# Dask


@contextlib.contextmanager
def local_cluster() -> Iterator[Client]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_cluster() as client:
        yield client


@pytest.fixture
def own_client() -> Iterator[Client]:
    """Of a cluster whose workers may be killed: a busy machine takes a minute to begin others."""
    with local_cluster() as client:
        yield client


def test_a_local_cluster(client, tmp_path: Path) -> None:
    path = npy_files(tmp_path / "x", 300)
    assert shardproof.seal(path, executor=client.get_executor()).n_files == 300
    (path / "00007.npy").unlink()
    for level in ("present", "complete", "valid"):
        by_threads = shardproof.validate(path, level=level)
        assert shardproof.validate(path, executor=client.get_executor(), level=level) == by_threads
    (path / "00009.npy").unlink()  # Dask keeps the results of equal tasks
    assert shardproof.validate(path, executor=client.get_executor()).n_findings == 2
    source = shutil.copytree(path, tmp_path / "source")
    for i in (7, 9):
        np.save(source / f"{i:05}.npy", np.arange(i % 7))
    done = shardproof.repair(path, str(source), executor=client.get_executor())
    assert (done.ok, len(done.repaired)) == (True, 2)


def test_a_worker_of_dask_is_killed_midway(client, tmp_path: Path) -> None:
    manifest = shards(tmp_path / "x", n=5000)
    (manifest.root / "004999").unlink()
    pids = client.run(os.getpid)
    with recorded("dask", "a worker is killed midway") as saw:
        kill_first = once(lambda: kill(next(iter(pids.values()))))
        report = looked(manifest, client.get_executor(), kill_first)
        saw += [report.summary, *report.notes]
    assert [each.path.name for each in report.findings] == ["004999"]
    client.wait_for_workers(1, timeout=300)


@pytest.mark.slow
def test_dask_and_a_file_that_kills(own_client, tmp_path: Path, monkeypatch) -> None:
    # Dask begins new workers four times, for which a busy machine takes long.
    monkeypatch.setattr(_engine, "_PATIENCE", (600.0, 600.0))
    manifest = shards(tmp_path / "x", n=300, deadly=(77,))
    with recorded("dask", "a file kills whoever reads it") as saw:
        report = looked(manifest, own_client.get_executor())
        [finding] = report.findings
        saw += [finding.found, *report.notes]
    assert finding.found.startswith(f"{ENDS} (SIGKILL")
    assert "KilledWorker" in report.notes[0]
    assert "all that was left" not in report.notes[0]  # Dask makes new workers
    own_client.wait_for_workers(1, timeout=300)
    assert looked(shards(tmp_path / "y", n=30), own_client.get_executor()).notes == ()


# Dask over TCP


@contextlib.contextmanager
def process(*command: object, until: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready; it and all that it began are ended."""
    child = subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    lines = []
    assert child.stdout is not None
    for line in child.stdout:
        lines.append(line)
        if re.search(until, line):
            break
    else:
        raise AssertionError("".join(lines))
    reader = threading.Thread(target=child.stdout.read)
    reader.start()
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        reader.join()
        with child:
            pass


@pytest.fixture
def tcp(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str], subprocess.Popen[str]]]:
    where = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker"]
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", where]
    ready = "Scheduler at|Registered to|Starting established connection"
    with process(*dask, *options, until=ready) as scheduler:
        wait_until(lambda: where.exists() and where.read_text())
        address = json.loads(where.read_text())["address"]
        options = ["--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
        with process(*worker, address, *options, until="Starting established") as workers:
            yield address, scheduler, workers


def shardproof_says(*args: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [*SHARDPROOF, *map(str, args)], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_commands_by_a_scheduler_in_another_process(tcp, tmp_path: Path) -> None:
    path = npy_files(tmp_path / "x", 200)
    code, out, err = shardproof_says("seal", path, "--dask", tcp[0])
    assert (code, err) == (0, "")
    assert "SHA256SUMS': 200 files" in out
    source = shutil.copytree(path, tmp_path / "source")
    (path / "00003.npy").unlink()
    code, out, err = shardproof_says("validate", path, "--dask", tcp[0], "--level", "valid")
    assert (code, err) == (1, "")
    assert "1 finding: 1 missing" in out
    code, out, err = shardproof_says("repair", path, "--from", source, "--dask", tcp[0])
    assert (code, err) == (0, "")
    assert "1 of 1 files fetched" in out


@pytest.mark.slow
def test_a_scheduler_is_killed_midway(tcp, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_engine, "_PATIENCE", (60.0, 2.0))
    address, scheduler, _ = tcp
    manifest = shards(tmp_path / "x", n=5000)
    with Client(address, timeout=10) as client:
        client.submit(abs, 1).result()
        with recorded("dask", "the scheduler is killed midway (patience of 2 s)") as saw:
            report = looked(manifest, client.get_executor(), once(lambda: kill(scheduler.pid)))
            saw += [report.summary, *report.notes]
        client.close(timeout=1)
    assert report.ok
    assert report.notes


@pytest.mark.slow
def test_workers_of_dask_are_stopped(tcp, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_engine, "_PATIENCE", (60.0, 2.0))
    address, _, _ = tcp
    manifest = shards(tmp_path / "x", n=5000)
    with Client(address, timeout=10) as client:
        pids = client.run(os.getpid).values()
        stop = once(lambda: [os.kill(pid, signal.SIGSTOP) for pid in pids])
        with recorded("dask", "all workers are stopped (patience of 2 s)") as saw:
            report = looked(manifest, client.get_executor(), stop)
            saw += [report.summary, *report.notes]
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert report.ok
    assert "no answer for " in report.notes[0]


def test_a_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    path = npy_files(tmp_path / "x", 2)
    with recorded("dask", "no scheduler answers") as saw:
        code, out, err = shardproof_says("validate", path, "--dask", "tcp://127.0.0.1:9")
        saw.append(err.strip())
    assert (code, out) == (3, "")
    [line] = err.splitlines()
    assert line.startswith("--dask: no scheduler answers at 'tcp://127.0.0.1:9': ")
    code, _, err = shardproof_says("validate", path, "--dask", "foo://x")
    assert (code, len(err.splitlines())) == (3, 1)


@pytest.mark.slow
def test_an_interrupt_of_a_check_over_dask(tcp, tmp_path: Path) -> None:
    path = npy_files(tmp_path / "x", 20_000)
    command = [*SHARDPROOF, "validate", path, "--level", "valid", "--dask", tcp[0]]
    child = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    time.sleep(2.0)
    begin = time.monotonic()
    with recorded("dask", "Ctrl-C") as saw:
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        saw.append(f"exit code {child.returncode}")
    assert child.returncode in {130, -signal.SIGINT, 0}
    assert time.monotonic() - begin < 10.0
    assert "Traceback" not in err


# MPI

MPIEXEC = ["mpiexec", "--allow-run-as-root", "--oversubscribe", "-n"]


def mpi(n: int, *args: object, timeout: float = 60) -> tuple[int, str, str]:
    if shutil.which("mpiexec") is None:
        pytest.skip("there is no mpiexec here: Debian's openmpi-bin has it")
    command = [*MPIEXEC, str(n), *map(str, args)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("n", [1, 3])
def test_the_commands_by_ranks(tmp_path: Path, n: int) -> None:
    path = npy_files(tmp_path / "x", 200)
    code, out, err = mpi(n, *SHARDPROOF, "seal", "--mpi", path)
    assert (code, out.count("SHA256SUMS': 200 files"), err) == (0, 1, "")
    code, out, err = mpi(n, *SHARDPROOF, "validate", "--mpi", "--level", "valid", path)
    assert (code, out.count("valid: 200 of 200 files"), err) == (0, 1, "")
    (path / "00003.npy").unlink()
    code, out, _ = mpi(n, *SHARDPROOF, "validate", "--mpi", "--json", path)
    assert (code, json.loads(out)[0]["counts"]) == (1, {"missing": 1})


SCRIPT = """
import sys
from mpi4py.futures import MPICommExecutor
from shardproof._base.work import apart
from shardproof.checks import check
from tests.helpers.engine_faults import shards

with MPICommExecutor() as pool:
    if pool is not None:
        manifest = shards(sys.argv[1], n=300, deadly=(77,))
        report = apart(lambda _: check(manifest, level="complete", executor=pool))
        print(report.summary, *report.notes, flush=True)
"""


def test_a_file_that_kills_a_rank_ends_what_mpiexec_began(tmp_path: Path) -> None:
    """That is mpiexec's way: it ends all ranks where one is killed, and the exit code tells."""
    with recorded("mpi", "a file kills the rank that reads it") as saw:
        code, out, err = mpi(3, sys.executable, "-c", SCRIPT, tmp_path / "x")
        reason = next((line for line in err.splitlines() if "signal" in line), "")
        saw.append(f"mpiexec ends all ranks, exit code {code}: {reason}")
    assert code != 0
    assert out == ""

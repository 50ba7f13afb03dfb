"""Real ranks, of gloo and of MPI: one of them fails, is killed, stopped, interrupted or blind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardproof
from tests.cluster.rank import FAULTS, TIMEOUT
from tests.helpers import ROOT

N_RANKS = 3
HOST = socket.gethostname()


@contextlib.contextmanager
def torch_job(*args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Ranks whose store rank 0 has, as without torchrun, whose agent ends all where one dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}", "WORLD_SIZE": f"{N_RANKS}"}
    command = [sys.executable, "-m", "tests.cluster.rank", "torch", *args]
    environments = [{**os.environ, **where, "RANK": f"{rank}"} for rank in range(N_RANKS)]
    ranks = [subprocess.Popen(command, cwd=ROOT, env=each) for each in environments]
    try:
        yield ranks[1]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@contextlib.contextmanager
def mpi_job(*args: str) -> Iterator[subprocess.Popen[bytes]]:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    options = ["--allow-run-as-root", "--oversubscribe", "-n", f"{N_RANKS}"]
    command = [sys.executable, "-m", "tests.cluster.rank", "mpi", *args]
    job = subprocess.Popen([mpiexec, *options, *command], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield job
    finally:
        job.terminate()
        job.wait()


JOBS = {"torch.distributed": torch_job, "mpi4py": mpi_job}
SURVIVORS = {"torch.distributed": (0, 2), "mpi4py": ()}
"""Of a rank that was killed; mpiexec ends the others with it."""


def said(records: Path, rank: int) -> list[dict[str, Any]]:
    file = records / f"{rank}.jsonl"
    return list(map(json.loads, file.read_text().splitlines())) if file.exists() else []


def told(records: Path, rank: int, fault: str) -> dict[str, Any] | None:
    found = (each for each in said(records, rank) if each["fault"] == fault and "saw" in each)
    return next(found, None)


def all_told(records: Path, fault: str, ranks: tuple[int, ...]) -> list[dict[str, Any]]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [told(records, rank, fault) for rank in ranks]
        if all(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{fault}: a rank hangs: {[said(records, n)[-1:] for n in range(3)]}")


@pytest.fixture(scope="module", params=JOBS)
def job(request, shards_dir_factory, tmp_path_factory):
    """All faults, one after the other, with the ranks of one job."""
    path = shards_dir_factory(30, missing=[4, 28])
    records = tmp_path_factory.mktemp("records")
    found: dict[str, list[dict[str, Any]]] = {}
    with JOBS[request.param](str(path), str(records)) as process:
        for fault in FAULTS:
            hurt = 0 if fault.startswith("rank 0") else 1
            if fault == "killed":
                begin = time.monotonic()
                status = process.wait(60)  # of the rank that is killed, or of mpiexec
                ended = status, round(time.monotonic() - begin, 1)
                found[fault] = all_told(records, fault, SURVIVORS[request.param])
                break
            if fault.endswith("stopped"):
                others = tuple({0, 1, 2} - {hurt})
                found[fault] = all_told(records, fault, others)
                os.kill(said(records, hurt)[0]["pid"], signal.SIGCONT)
            found[fault] = all_told(records, fault, (0, 1, 2))
        pids = [said(records, rank)[0]["pid"] for rank in range(N_RANKS)]
    return request.param, path, found, pids, ended


def expected(fault: str, path: Path) -> tuple[str, float]:
    """How what each rank sees begins, and after how many seconds at most."""
    rank = f"rank 1 on {HOST}"
    texts = {
        "none": (f"report: {shardproof.validate(path).summary}", 0),
        "failing": (f"OSError: [Errno 5] {rank}: Input/output error", 0),
        "blind": (f"ManifestNotFoundError: {rank}: Could not read the manifest at '{path}/else", 0),
        "stopped": (f"RankError: {rank} has not answered for {TIMEOUT:g} s", TIMEOUT),
        "interrupted": (f"RankError: {rank} was interrupted", 0),
        "rank 0 stopped": (f"RankError: rank 0 on {HOST} has not answered for ", 1.5 * TIMEOUT),
        "killed": (f"RankError: {rank} has not answered for {TIMEOUT:g} s", TIMEOUT),
    }
    return texts[fault]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_rank_sees_the_same_in_time(job, fault: str, row) -> None:
    engine, path, found, _, (status, seconds_to_end) = job
    text, seconds = expected(fault, path)
    names = {"stopped": 1, "rank 0 stopped": 0, "interrupted": 1}
    for each in found[fault]:
        is_hurt = names.get(fault) == each["rank"]
        row(engine, fault, f"rank {each['rank']}", each["saw"], each["seconds"])
        if fault == "interrupted" and is_hurt:
            assert each["saw"] == "KeyboardInterrupt"
        else:
            assert each["saw"].startswith(text), each
            assert is_hurt or each["seconds"] >= seconds
    if engine == "mpi4py" and fault == "killed":
        assert status == 128 + signal.SIGKILL
        row(engine, fault, "rank 0, rank 2", f"ended by mpiexec ({status})", seconds_to_end)


def test_nothing_is_left_of_any_rank(job) -> None:
    *_, pids, _ = job
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)

"""The scripts of docs/examples/cluster, run by a SLURM of two nodes on this machine.

Where there is no SLURM, they run with stand-ins for its commands, as far as that makes sense.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof import testing, validate
from tests.helpers import ROOT
from tests.helpers.tiny_slurm import Slurm, tiny_slurm
from tests.helpers.waiting import until

SCRIPTS = ROOT / "docs/examples/cluster"
DAY = 86400


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Slurm]:
    with tiny_slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with the scripts, and shards that somebody has just used."""
    shutil.copytree(SCRIPTS, tmp_path / "work")
    testing.write_layout(testing.Layout(n_shards=8), tmp_path / "work/shards")
    return tmp_path / "work"


@pytest.mark.parametrize("name", ["check.sh", "prepare.sh", "train.sh"])
def test_slurm_accepts_it(slurm: Slurm, here: Path, name: str) -> None:
    done = slurm.run("sbatch", "--test-only", name, "a", "b", cwd=here)
    assert done.returncode == 0, done.stdout
    assert "to start at" in done.stdout


POLICY = {"PURGE_POLICY": "purdue"}


class TestCheck:
    def test_a_command_runs_on_shards_that_are_whole(self, slurm: Slurm, here: Path) -> None:
        code, said = slurm.job("check.sh", "shards", "echo", "training", cwd=here, env=POLICY)
        assert (code, "training" in said) == (0, True), said

    def test_none_runs_where_the_purge_takes_one_within_a_day(self, slurm, here: Path) -> None:
        at = time.time() - 59.5 * DAY
        os.utime(here / "shards/acts000003.bin", (at, at))
        code, said = slurm.job("check.sh", "shards", "echo", "training", cwd=here, env=POLICY)
        assert (code, "training" in said) == (1, False), said
        assert "acts000003.bin" in said

    def test_none_runs_where_one_is_cut(self, slurm: Slurm, here: Path) -> None:
        os.truncate(here / "shards/acts000003.bin", 5)
        code, said = slurm.job("check.sh", "shards", "echo", "training", cwd=here, env=POLICY)
        assert (code, "training" in said) == (1, False), said
        assert "1 of another size" in said


def test_an_array_shares_shards_and_makes_again_what_is_gone(slurm: Slurm, here: Path) -> None:
    (here / "corpus").mkdir()
    for letter in "abcdefgh":
        (here / f"corpus/{letter}.txt").write_text(letter * 9)
    args = ("prepare.py", "corpus", "tokens")
    code, said = slurm.job("prepare.sh", *args, cwd=here)
    assert code == 0, said
    assert sorted(line for line in said.splitlines() if line.startswith("made")) == [
        f"made shard {index}" for index in range(8)
    ]
    done = slurm.run("bash", "again.sh", *args, cwd=here)
    assert "all shards are made" in done.stdout
    [gone, *_] = here.rglob("shard_000003.bin")
    gone.unlink()
    done = slurm.run("bash", "again.sh", *args, cwd=here, env={"SBATCH_WAIT": "1"})
    assert done.returncode == 0, done.stdout
    assert slurm.run("shardproof", "receipts", "tokens", cwd=here).returncode == 0


WAITING = """
import pathlib, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("given back")))
pathlib.Path("ready").touch()
time.sleep(100)
"""


def test_what_slurm_sends_before_the_end_reaches_the_work(slurm: Slurm, here: Path) -> None:
    (here / "waiting.py").write_text(WAITING)
    done = slurm.run("sbatch", "--parsable", "--array=0", "prepare.sh", "waiting.py", cwd=here)
    until((here / "ready").exists)
    # As --signal=TERM@120 does: the steps of the job get it. With B: its script would, and srun,
    # which that has become, kills the step.
    slurm.run("scancel", "--signal=TERM", done.stdout.strip(), cwd=here)
    [output] = here.glob("slurm-*.out")
    until(lambda: "given back" in output.read_text())


def test_of_an_array_that_can_not_be_read_nothing_is_submitted(here: Path) -> None:
    (here / "sbatch").write_text("#!/bin/bash\necho submitted\n")
    (here / "sbatch").chmod(0o755)
    path = f"{here}:{Path(shutil.which('shardproof') or '').parent}:{os.environ['PATH']}"
    command = ["bash", "again.sh", "prepare.py", "corpus", "tokens"]
    done = subprocess.run(
        command, cwd=here, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, "submitted" in done.stdout) == (2, False)


def test_the_ranks_of_torchrun_share_a_check(slurm: Slurm, here: Path) -> None:
    pytest.importorskip("torch")
    ranks = {"RANKS_PER_NODE": "2"}
    code, said = slurm.job("train.sh", "train.py", "shards", cwd=here, env=ranks)
    assert code == 0, said
    assert sorted(
        line.partition(" has seen ")[0] for line in said.splitlines() if "rows" in line
    ) == [f"rank {rank} of 4" for rank in range(4)]
    (here / "shards/acts000003.bin").unlink()
    code, said = slurm.job("train.sh", "train.py", "shards", cwd=here, env=ranks)
    assert code != 0
    assert "acts000003.bin" in said
    assert "rows" not in said


class TestSeal:
    def test_by_jobs_of_slurm(self, slurm: Slurm, here: Path) -> None:
        pytest.importorskip("dask_jobqueue")
        done = slurm.run("python", "seal.py", "shards", cwd=here)
        assert "8 files are in" in done.stdout, done.stdout
        assert validate(here / "shards", level="valid").n_proven == 8

    def test_by_workers_of_this_machine(self, here: Path) -> None:
        """With a stand-in for the cluster of SLURM: where there is none."""
        pytest.importorskip("distributed")
        (here / "dask_jobqueue.py").write_text(STAND_IN)
        command = [shutil.which("python") or "python", "-W", "ignore", "seal.py", "shards"]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120)
        assert "8 files are in" in done.stdout, done.stderr
        assert validate(here / "shards", level="valid").n_proven == 8


STAND_IN = """
from dask.distributed import LocalCluster

class SLURMCluster(LocalCluster):
    def __init__(self, cores, memory, walltime):
        super().__init__(n_workers=0, threads_per_worker=cores, dashboard_address=None)

    def scale(self, jobs):
        super().scale(min(jobs, 2))
"""


@pytest.fixture
def bucket() -> Iterator[str]:
    """The address of an S3 server."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


def test_a_bucket_is_checked_before_a_job_is_submitted(here: Path, bucket: str) -> None:
    import s3fs

    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": bucket}
    store = s3fs.S3FileSystem(key="x", secret="x", endpoint_url=bucket)
    store.mkdir("bucket")
    store.put(str(here / "shards"), "bucket/shards", recursive=True)
    (here / "sbatch").write_text('#!/bin/bash\necho "submitted $*"\n')
    (here / "sbatch").chmod(0o755)
    path = f"{here}:{Path(shutil.which('shardproof') or '').parent}:{os.environ['PATH']}"
    env = {**os.environ, **keys, "PATH": path, "AWS_DEFAULT_REGION": "us-east-1"}

    def submit() -> subprocess.CompletedProcess[str]:
        command = ["bash", "bucket.sh", "s3://bucket/shards", "train.sh", "train.py"]
        return subprocess.run(command, cwd=here, env=env, capture_output=True, text=True)

    done = submit()
    assert done.stdout.endswith("submitted train.sh train.py s3://bucket/shards\n"), done.stderr
    store.rm("bucket/shards/acts000003.bin")
    done = submit()
    assert (done.returncode, "submitted" in done.stdout) == (1, False), done.stdout
    assert "acts000003.bin" in done.stdout

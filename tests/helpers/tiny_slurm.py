"""A SLURM of two nodes on this machine: Debian's daemons, over the loopback interface."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.helpers.waiting import until

__all__ = ["Slurm", "tiny_slurm"]

_CONFIGURATION = """\
ClusterName=tiny
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={place}/state
SlurmctldPidFile={place}/slurmctld.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdSpoolDir={place}/spool-%n
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=9000
NodeName={host}-2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=9000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """What submits jobs there, with the commands of this environment."""

    def __init__(self, place: Path) -> None:
        bin_dir = Path(sys.executable).parent
        self.place = place
        self.env = {
            **{name: text for name, text in os.environ.items() if not name.startswith("SLURM")},
            "SLURM_CONF": str(place / "slurm.conf"),
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "PYTHONWARNINGS": "ignore",
        }

    def run(
        self, *command: object, cwd: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as on a login node."""
        return subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env={**self.env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )

    def job(
        self, *args: object, cwd: Path, env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Submit a job, wait for its end; return its exit code, and what all its tasks printed."""
        for old in cwd.glob("slurm-*.out"):
            old.unlink()
        done = self.run("sbatch", "--wait", *args, cwd=cwd, env=env)
        said = [path.read_text() for path in sorted(cwd.glob("slurm-*.out"))]
        return done.returncode, "".join([done.stdout, *said])


@contextlib.contextmanager
def tiny_slurm(place: Path) -> Iterator[Slurm]:
    """Run the daemons meanwhile; skip, by name, where that is not possible."""
    lacking = [name for name in ("sbatch", "slurmctld", "slurmd") if shutil.which(name) is None]
    if lacking:
        pytest.skip(f"no {', '.join(lacking)} here: Debian's slurm-wlm has them")
    if os.geteuid():
        pytest.skip("slurmd runs as root only")
    with contextlib.ExitStack() as stack:
        doors = [stack.enter_context(socket.socket()) for _ in range(3)]
        for door in doors:
            door.bind(("127.0.0.1", 0))
        ports = [door.getsockname()[1] for door in doors]
    host = socket.gethostname().partition(".")[0]
    (place / "state").mkdir()
    (place / "slurm.conf").write_text(_CONFIGURATION.format(host=host, place=place, ports=ports))
    slurm, daemons = Slurm(place), list[subprocess.Popen[bytes]]()
    try:
        for command in (["slurmctld"], ["slurmd", "-N", host], ["slurmd", "-N", f"{host}-2"]):
            with (place / f"{command[0]}-{command[-1]}.txt").open("w") as output:
                daemon = [*command, "-D"]
                daemons.append(
                    subprocess.Popen(daemon, env=slurm.env, stdout=output, stderr=output)
                )
        until(lambda: any(map(subprocess.Popen.poll, daemons)) or _is_up(slurm))
        assert _is_up(slurm), (place / "slurmctld.log").read_text()
        yield slurm
    finally:
        if daemons:
            slurm.run("scancel", "--full", "-p", "main", cwd=place)
            until(lambda: not slurm.run("squeue", "-h", cwd=place).stdout)
        for process in reversed(daemons):
            process.terminate()
        for process in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def _is_up(slurm: Slurm) -> bool:
    return "2 idle" in slurm.run("sinfo", "-h", "-o", "%D %t", cwd=slurm.place).stdout

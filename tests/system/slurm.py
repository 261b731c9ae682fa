"""A real Slurm on loopback for tests: its own munge, one controller, two nodes of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.machine import patience

_CONF = """
ClusterName=operant
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MessageTimeout=2
GresTypes=slot,gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
NodeName=DEFAULT CPUs=8 RealMemory=8000 Gres=slot:8,gpu:2 State=UNKNOWN
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]}
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]}
PartitionName=debug Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=10
"""


class Slurm:
    """The cluster's daemons, and a few of its commands."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one of `munged`, `slurmctld`, `n1` and `n2`."""
        place = self.place
        argv = {
            "munged": [
                "munged", "--foreground", "--force", f"--socket={place}/munge.socket", f"--key-file={place}/munge.key",
                f"--pid-file={place}/munged.pid", f"--log-file={place}/munged.log", f"--seed-file={place}/munge.seed",
                "--num-threads=2",
            ],
            "slurmctld": ["slurmctld", "-D"],
        }.get(name, ["slurmd", "-D", "-N", name])  # fmt: skip
        with (place / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        daemon = self.daemons.pop(name)
        daemon.send_signal(number)
        try:
            daemon.wait(patience(10))
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def say(self, *argv: str) -> str:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def queue(self) -> list[str]:
        """What waits or runs."""
        return self.say("squeue", "-h", "-r", "-o", "%j|%i|%T|%r").splitlines()

    def is_empty(self) -> bool:
        """Whether nothing is left, once what is just ending has ended."""
        deadline = time.monotonic() + patience(10)
        while (left := self.queue()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return not left

    def wait_for_nodes(self) -> None:
        deadline = time.monotonic() + patience(20)
        while True:
            asked = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T"], capture_output=True, text=True, check=False)
            if len({line.split()[0] for line in asked.stdout.splitlines() if line.endswith("idle")}) == 2:
                return
            assert time.monotonic() < deadline, asked.stdout + asked.stderr + self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace")[-2000:] for path in self.place.glob("*.log"))


@contextmanager
def running_slurm() -> Iterator[Slurm]:
    """A cluster of two nodes; all of it is gone afterwards."""
    for program, package in (("slurmctld", "slurm-wlm"), ("munged", "munge")):
        if shutil.which(program) is None:
            pytest.skip(f"needs Debian's package {package}")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons run as root")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    place = Path(tempfile.mkdtemp(prefix="operant-slurm-", dir="/tmp"))
    cluster = Slurm(place)
    try:
        (place / "state").mkdir()
        (place / "munge.key").write_bytes(os.urandom(128))
        (place / "munge.key").chmod(0o600)
        for name in ("gpu0", "gpu1"):  # devices, of which jobs get the numbers
            os.mknod(place / name, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        gres = f"NodeName=n[1-2] Name=slot Count=8\nNodeName=n[1-2] Name=gpu File={place}/gpu[0-1]\n"
        (place / "gres.conf").write_text(gres)
        (place / "slurm.conf").write_text(_CONF.format(place=place, ports=ports))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(place / "slurm.conf"))
            cluster.start("munged")
            deadline = time.monotonic() + patience(10)
            while not (place / "munge.socket").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            for name in ("slurmctld", "n1", "n2"):
                cluster.start(name)
            cluster.wait_for_nodes()
            yield cluster
            subprocess.run(["scancel", "--me", "--quiet"], check=False)
    finally:
        for name in ("n1", "n2", "slurmctld", "munged"):
            if name in cluster.daemons:
                cluster.end(name)
        shutil.rmtree(place, ignore_errors=True)

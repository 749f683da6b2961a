"""A real Slurm on this host alone, without systemd: munged, slurmctld and slurmd in one folder. Needs root.

  python tools/one_node_slurm.py /tmp/cluster        starts it, prints what to export, and ends it on Ctrl-C

The tests start it through tests/support/pools/slurm.py. Debian's packages slurm-wlm and munge hold the daemons.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

MUNGED, SLURMCTLD, SLURMD = "munged", "slurmctld", "slurmd"
_READY_S = 60.0
_CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
MinJobAge=5
KillWait=5
ReturnToService=2
MessageTimeout=5
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 Feature=fast State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE PriorityTier=2 State=UP
PartitionName=spare Nodes={host} MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=physics Nodes={host} MaxTime=INFINITE PriorityTier=2 AllowAccounts=physics State=UP
"""


def missing() -> list[str]:
    """Programs that are not installed."""
    return [name for name in (MUNGED, SLURMCTLD, SLURMD, "sbatch", "squeue", "scancel") if _program(name) is None]


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Cluster:
    """One host as a cluster. Every command of Slurm finds it by `SLURM_CONF`."""

    def __init__(self, folder: Path, cpus: int = 8) -> None:
        self.folder = folder.resolve()
        self.conf = self.folder / "slurm.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "munge").mkdir(mode=0o711, exist_ok=True)
        (self.folder / "munge").chmod(0o711)
        key = self.folder / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        host = socket.gethostname().partition(".")[0]
        ctld_port, slurmd_port = _low_ports(2)
        self.conf.write_text(
            _CONF.format(folder=self.folder, host=host, cpus=cpus, ctld_port=ctld_port, slurmd_port=slurmd_port)
        )

    def start(self) -> None:
        munge, key = self.folder / "munge", self.folder / "key"
        files = ["--socket", f"{munge}/socket", "--pid-file", f"{munge}/pid", "--log-file", f"{munge}/log"]
        self._run(MUNGED, "--foreground", "--force", "--key-file", str(key), "--seed-file", f"{munge}/seed", *files)
        _until((munge / "socket").exists, "munged made no socket", self._processes[MUNGED])
        self.start_controller(forget=True)
        self._run(SLURMD, "-D", "-f", str(self.conf))
        _until(lambda: self.said("sinfo", "-h", "-p", "main", "-o", "%T") == "idle", "no node came up", None)

    def start_controller(self, forget: bool = False) -> None:
        """Start slurmctld; `forget`: without what it has saved."""
        self._run(SLURMCTLD, "-D", "-f", str(self.conf), *(["-c"] if forget else []))
        _until(lambda: "UP" in self.said("scontrol", "ping"), "slurmctld did not come up", self._processes[SLURMCTLD])

    def kill_controller(self) -> None:
        self._processes[SLURMCTLD].kill()
        self._processes[SLURMCTLD].wait()

    def said(self, *command: str) -> str:
        """What a command of Slurm prints; empty if it fails."""
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout.strip()

    def stop(self) -> None:
        self.said("scancel", "--user", "root", "--full", "--signal", "KILL")
        for name in (SLURMD, SLURMCTLD, MUNGED):
            if (process := self._processes.pop(name, None)) is not None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _run(self, name: str, *options: str) -> None:
        program = _program(name)
        assert program is not None, f"{name} is missing: sh tools/system.sh installs it"
        env = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin"}
        with open(self.folder / f"{name}.out", "ab") as out:
            self._processes[name] = subprocess.Popen([program, *options], env=env, stdout=out, stderr=out)


def _low_ports(count: int) -> list[int]:
    """Free ports below those that the system gives to outgoing connections."""
    found: list[int] = []
    port = 12000 + os.getpid() % 15000
    while len(found) < count:
        port += 1
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found


def _until(condition: object, complaint: str, process: subprocess.Popen[bytes] | None) -> None:
    end = time.monotonic() + _READY_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            raise RuntimeError(complaint)
        time.sleep(0.05)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    if absent := missing():
        print(f"missing: {', '.join(absent)}\n  try: sudo apt-get install slurm-wlm munge", file=sys.stderr)
        return 2
    if os.getuid() != 0:
        print("slurmd starts jobs only as root\n  try again with sudo", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = Cluster(Path(sys.argv[1]))
    try:
        cluster.start()
        print(f"export SLURM_CONF={cluster.conf}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

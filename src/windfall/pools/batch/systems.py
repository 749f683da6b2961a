"""What differs between batch systems: commands, states, words of errors. Pure data and parsing; touches nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from windfall.pools.contract import (
    CAPACITY,
    CREDENTIALS,
    ENDED,
    FAILED,
    INVALID,
    PENDING,
    QUOTA,
    RUNNING,
    TAKEN,
    TRANSIENT,
)

Words = list[str]


class Job(Struct, frozen=True):
    """One job as the batch system lists it."""

    id: str
    name: str
    phase: str
    cause: str = ""
    """Of one that has ended: taken, failed, or empty for good order."""
    why: str = ""
    """Why it waits or how it ended, in the system's own words."""
    since_t: float = 0.0
    index: str = ""
    """Of an element of a job array: its number."""


class Arrays(Struct, frozen=True):
    """How a batch system takes several jobs at once. Elements have numbers; all of them have the name of the array."""

    index: str
    """Variable that holds the number of an element on its node."""
    id: str
    """Variable that holds the id of the array there."""
    output: str
    """Stands for the number in the directive of the output."""
    element: Callable[[str, int], str]
    """The id of an element, from that of its array and its number."""
    directive: str
    """Directive that asks for the elements {first} to {last}; it may have to say the {name}, too."""


class System(Struct, frozen=True):
    """One batch system. Options and directives are those of its submit command."""

    name: str
    title: str
    executor: str
    """Module and class of psij-python that writes its directives."""
    directive: str
    name_option: str
    """Custom attribute of psij-python that sets the name of a job."""
    output: str
    """Directive that sends what the job prints to the file {0}."""
    version: Words
    listing: Words
    """Lists every job of this user, also those that ended a short time ago."""
    parse: Callable[[bytes], list[Job]]
    cancel: Words
    """Ends the job whose id is added; {name} is its name, where the command can check it."""
    terminate: Words
    """Sends SIGTERM to the worker alone."""
    gone: Sequence[str]
    """Words of `cancel` for a job that has ended already."""
    job_id: str
    """Variable that holds the id of the job on its node."""
    restarts: str = ""
    """Variable that counts how often the system has started the job again."""
    seconds_left: str = "echo {walltime_s}"
    """Shell command that prints how many seconds the job may still run."""
    warning: str = ""
    """Directive that has SIGUSR1 sent to the worker {0} seconds before the walltime."""
    always: Words = []
    """Directives of every job; options of the user's own come later, and count."""
    cores_are_processes: bool = True
    """Cores are asked for as processes, because psij-python's template knows nothing else."""
    env: Mapping[str, str] = {}
    dry_run: Words = []
    """Options of the submit command by which it checks a job and takes none."""
    nodes: Words = []
    """Prints the names of the nodes."""
    arrays: Arrays | None = None
    unsure: Sequence[str] = ()
    """Words of a submit command, in lower case, whose answer was lost on its way."""
    errors: Sequence[tuple[str, str]] = ()
    """Words of the submit command in lower case, and the kind of error that they mean; the first match counts."""

    def kind_of(self, said: str) -> str:
        text = said.lower()
        return next((kind for words, kind in self.errors if words in text), TRANSIENT)

    def is_unsure(self, said: str) -> bool:
        """Whether the job may have been taken although the submit command failed."""
        return any(words in said.lower() for words in self.unsure)


# --- Slurm ----------------------------------------------------------------------------------------------------------

_SLURM_PENDING = {"PD", "CF", "RD", "RF", "RH", "RQ", "RS", "RV", "SE", "SO"}
_SLURM_RUNNING = {"R", "CG", "S", "ST", "SI"}
_SLURM_ENDS = {
    "CD": ("", "it ended"),
    "F": (FAILED, "it failed"),
    "OOM": (FAILED, "it ran out of memory"),
    "BF": (FAILED, "its node did not boot"),
    "TO": (TAKEN, "it reached its walltime"),
    "DL": (TAKEN, "it reached its deadline"),
    "CA": (TAKEN, "it was cancelled"),
    "PR": (TAKEN, "it was preempted"),
    "NF": (TAKEN, "its node failed"),
}


def _slurm_jobs(out: bytes) -> list[Job]:
    jobs = []
    for line in out.decode(errors="replace").splitlines():
        parts = line.strip().split("|", 4)
        if len(parts) != 5:
            continue
        id, state, started, reason, name = parts
        index = id.partition("_")[2]
        since_t = float(started) if started.isdecimal() else 0.0
        if state in _SLURM_ENDS:
            cause, how = _SLURM_ENDS[state]
            why = how if reason in ("None", "") or state == "TO" else f"{how} ({reason})"
            jobs.append(Job(id, name, ENDED, cause, why, index=index))
        elif state in _SLURM_RUNNING:
            jobs.append(Job(id, name, RUNNING, since_t=since_t, index=index))
        else:  # a state that a newer Slurm has is taken for pending: the job is there
            jobs.append(Job(id, name, PENDING, why="" if reason == "None" else reason, index=index))
    return jobs


SLURM = System(
    name="slurm",
    title="Slurm",
    executor="psij.executors.batch.slurm:SlurmJobExecutor",
    directive="#SBATCH",
    name_option="slurm.job-name",
    output='--output="{0}"',
    version=["sbatch", "--version"],
    listing=["squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%t|%S|%r|%j"],
    parse=_slurm_jobs,
    # A controller that was killed may give an id again: only a job of this name is meant.
    cancel=["scancel", "--quiet", "--name={name}"],
    terminate=["scancel", "--quiet", "--name={name}", "--batch", "--signal=TERM"],
    gone=("invalid job id", "already completing or completed"),
    job_id="SLURM_JOB_ID",
    restarts="SLURM_RESTART_COUNT",
    # Slurm 23.02 and newer set the variable; older ones are asked once. The id of a job may be that of a whole array.
    seconds_left=(
        "me=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_}}${{SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}}; "
        "end=${{SLURM_JOB_END_TIME:-$(SLURM_TIME_FORMAT=%s squeue --noheader --job=$me --format=%e)}}; "
        'now=$(date +%s); expr "$end" - "$now" || echo {walltime_s}'
    ),
    warning="--signal=B:USR1@{0}",
    # What is missing is asked for again by the engine, which knows whether there is still work for it.
    always=["--no-requeue", "--open-mode=append"],
    cores_are_processes=False,
    env={"SLURM_TIME_FORMAT": "%s"},
    dry_run=["--test-only"],
    nodes=["sinfo", "--noheader", "--Node", "--format=%n"],
    arrays=Arrays(
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_JOB_ID",
        "%a",
        lambda id, index: f"{id}_{index}",
        "--array={first}-{last}",
    ),
    unsure=("socket timed out", "zero bytes were transmitted", "unexpected message received", "connection reset"),
    errors=(
        ("invalid account", INVALID),
        ("invalid partition", INVALID),
        ("invalid qos", INVALID),
        ("invalid feature", INVALID),
        ("invalid generic resource", INVALID),
        ("invalid time limit", INVALID),
        ("requested time limit is invalid", INVALID),
        ("requested node configuration is not available", INVALID),
        ("unrecognized option", INVALID),
        ("invalid option", INVALID),
        ("invalid --", INVALID),
        ("more processors requested than permitted", INVALID),
        ("user's group not permitted", CREDENTIALS),
        ("access/permission denied", CREDENTIALS),
        ("invalid user id", CREDENTIALS),
        ("authentication", CREDENTIALS),
        ("munge", CREDENTIALS),
        ("violates accounting/qos policy", QUOTA),
        ("limit", QUOTA),
        ("partition is in an unavailable state", CAPACITY),
        ("required partition not available", CAPACITY),
        ("nodes required for job are down", CAPACITY),
    ),
)

# --- PBS ------------------------------------------------------------------------------------------------------------

_PBS_PHASES = {"R": RUNNING, "E": RUNNING, "B": RUNNING, "S": RUNNING, "U": RUNNING, "F": ENDED, "X": ENDED}
_PBS_KILLED = 256
"""PBS adds the number of the signal to this."""


class _PbsJob(Struct):
    job_state: str = ""
    Job_Name: str = ""
    comment: str = ""
    Exit_status: int | None = None


class _PbsAnswer(Struct):
    Jobs: dict[str, _PbsJob] = {}


def _pbs_jobs(out: bytes) -> list[Job]:
    jobs = []
    for id, row in msgspec.json.decode(out or b"{}", type=_PbsAnswer).Jobs.items():
        if "[]" in id:
            continue  # an array: its elements are listed, too
        index = id.partition("[")[2].partition("]")[0]
        phase = _PBS_PHASES.get(row.job_state, PENDING)
        cause = ""
        if phase == ENDED and row.Exit_status not in (0, None):
            cause = TAKEN if row.Exit_status < 0 or row.Exit_status > _PBS_KILLED else FAILED
        jobs.append(Job(id, row.Job_Name, phase, cause, row.comment, index=index))
    return jobs


PBS = System(
    name="pbs",
    title="PBS",
    executor="psij.executors.batch.pbs:PBSJobExecutor",
    directive="#PBS",
    name_option="pbs.N",
    output='-j oe -o "{0}"',
    version=["qstat", "--version"],
    listing=["qstat", "-f", "-F", "json", "-x", "-t"],
    parse=_pbs_jobs,
    cancel=["qdel"],
    terminate=["qsig", "-s", "TERM"],
    gone=("unknown job id", "job has finished"),
    job_id="PBS_JOBID",
    arrays=Arrays(
        "PBS_ARRAY_INDEX",
        "PBS_ARRAY_ID",
        "^array_index^",
        lambda id, index: id.replace("[]", f"[{index}]"),
        "-J {first}-{last}",
    ),
    unsure=("end of file", "communication failure", "no reply"),
    errors=(
        ("unknown queue", INVALID),
        ("invalid account", INVALID),
        ("illegal attribute", INVALID),
        ("unknown resource", INVALID),
        ("illegal value", INVALID),
        ("unauthorized request", CREDENTIALS),
        ("not authorized", CREDENTIALS),
        ("would exceed", QUOTA),
        ("exceeds queue", QUOTA),
        ("queue is not enabled", CAPACITY),
    ),
)

# --- LSF ------------------------------------------------------------------------------------------------------------

_LSF_PHASES = {"PEND": PENDING, "PROV": PENDING, "PSUSP": PENDING, "WAIT": PENDING, "DONE": ENDED, "EXIT": ENDED}


class _LsfRow(Struct):
    JOBID: str = ""
    STAT: str = ""
    JOB_NAME: str = ""
    PEND_REASON: str = ""
    EXIT_REASON: str = ""
    JOBINDEX: str = ""


class _LsfAnswer(Struct):
    RECORDS: list[_LsfRow] = []


def _lsf_jobs(out: bytes) -> list[Job]:
    jobs = []
    for row in msgspec.json.decode(out or b"{}", type=_LsfAnswer).RECORDS:
        phase = _LSF_PHASES.get(row.STAT, RUNNING)
        cause = ""
        if row.STAT == "EXIT":
            cause = TAKEN if row.EXIT_REASON.startswith("TERM_") else FAILED
        index = row.JOBINDEX if row.JOBINDEX != "0" else ""
        id, name = (f"{row.JOBID}[{index}]", row.JOB_NAME.partition("[")[0]) if index else (row.JOBID, row.JOB_NAME)
        jobs.append(Job(id, name, phase, cause, row.EXIT_REASON or row.PEND_REASON, index=index))
    return jobs


LSF = System(
    name="lsf",
    title="LSF",
    executor="psij.executors.batch.lsf:LsfJobExecutor",
    directive="#BSUB",
    name_option="lsf.J",
    output='-o "{0}"',
    version=["bsub", "-V"],
    listing=["bjobs", "-a", "-o", "jobid jobindex stat job_name pend_reason exit_reason", "-json"],
    parse=_lsf_jobs,
    cancel=["bkill"],
    terminate=["bkill", "-s", "TERM"],
    gone=("no matching job", "already finished"),
    job_id="LSB_JOBID",
    arrays=Arrays(
        "LSB_JOBINDEX",
        "LSB_JOBID",
        "%I",
        lambda id, index: f"{id}[{index}]",
        '-J "{name}[{first}-{last}]"',
    ),
    warning="-wa USR1 -wt {minutes}",
    errors=(
        ("no such queue", INVALID),
        ("bad queue", INVALID),
        ("illegal option", INVALID),
        ("not a valid project", INVALID),
        ("cannot use the queue", CREDENTIALS),
        ("permission denied", CREDENTIALS),
        ("limit has been reached", QUOTA),
        ("queue has been closed", CAPACITY),
    ),
)

SYSTEMS = {system.name: system for system in (SLURM, PBS, LSF)}

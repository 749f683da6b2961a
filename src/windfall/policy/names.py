"""What a policy may name: the ads and their attributes, the functions, the policies. Pure tables and lookups.

`docs/reference/policies.md` prints these tables; a test keeps the two the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from msgspec import Struct

from windfall.core.matching.policy import POLICIES

# In the order in which the evaluator passes them on. Grid is the paper's word for Pool.
ADS = ("Host", "Job", "BOT", "Queue", "Pool")
NICKNAMES = {"grid": "Pool", "bag": "BOT"}
# Spellings from GridBot's figure 3 and from HTCondor.
ALIASES = {("Host", "numcpus"): "Cpus", ("Host", "opsys"): "OS", ("Host", "machine"): "Name"}
REPLICA = re.compile(r"replica([1-9][0-9]*)", re.IGNORECASE)
MIN_SIMILARITY = 0.78
# Attributes of Job that all tasks of a class share as long as they have no replicas (GridBot 6.4).
SHARED_BY_TASKS = ("NumberOfReplicas", "Cpus", "Memory", "GpuCount", "Executable")
# Attributes that change only when a host sends another ad, or a bag gets other rules or enters another phase.
STEADY = {
    "Host": frozenset({"Name", "Cpus", "Memory", "GpuCount", "OS", "Arch", "Pool", "Speed", "Slots", "Isolated"}),
    "Job": frozenset(SHARED_BY_TASKS),
    "BOT": frozenset({"Name", "Owner", "Priority", "Tail", "SubmitTime", "DeadlineTime"}),
    "Pool": frozenset({"Name"}),
}


class Attribute(Struct, frozen=True):
    ad: str
    name: str
    type: str
    meaning: str
    example: str


ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("Host", "Name", "string", "name that the host reports", 'regexp("^node", Host.Name)'),
    Attribute("Host", "Cpus", "integer", "cores (also NumCpus)", "Host.Cpus >= 4"),
    Attribute("Host", "Memory", "integer", "memory in MB", "Host.Memory >= 8192"),
    Attribute("Host", "GpuCount", "integer", "GPUs that the host has, free or not", "Host.GpuCount == 0"),
    Attribute("Host", "OS", "string", "operating system, as in `uname -s`", 'Host.OS == "linux"'),
    Attribute("Host", "Arch", "string", "processor architecture, as in `uname -m`", 'Host.Arch == "x86_64"'),
    Attribute("Host", "Pool", "string", "name of the pool that the host came from", 'Host.Pool != "volunteers"'),
    Attribute("Host", "Speed", "real", "benchmark against the reference core, which is 1.0", "Host.Speed > 0.8"),
    Attribute(
        "Host",
        "RemainingLifetime",
        "real",
        "seconds until the host ends its tasks and leaves; very large if it need not",
        "Host.RemainingLifetime > 3600",
    ),
    Attribute("Host", "Isolated", "boolean", "its tasks run in a sandbox (`worker --isolate`)", "Host.Isolated"),
    Attribute("Host", "Running", "integer", "attempts on the host now", "Host.Running == 0"),
    Attribute("Host", "Slots", "integer", "attempts that the host wants to hold at once", "2 * Host.Slots"),
    Attribute("Host", "ErrorRate", "real", "decaying share of attempts that failed, 0 to 1", "Host.ErrorRate < 0.1"),
    Attribute("Host", "LossRate", "real", "decaying share of attempts that were lost, 0 to 1", "Host.LossRate < 0.2"),
    Attribute("Host", "JobsToday", "integer", "results accepted in the last 24 hours", "Host.JobsToday > 10"),
    Attribute("Host", "AverageTurnaround", "real", "mean seconds from sent to result", "Host.AverageTurnaround < 600"),
    Attribute(
        "Host", "CpuTimeUsedRecently", "real", "seconds of error-free work, decaying", "Host.CpuTimeUsedRecently"
    ),
    Attribute("Host", "Blocked", "boolean", "turned away as a black hole", "!Host.Blocked"),
    Attribute("Job", "Name", "string", "the task as commands name it: JOB.TASK", 'Job.Name == "fit.17"'),
    Attribute("Job", "Executable", "string", "program of the bag's command", 'Job.Executable == "/usr/bin/blastp"'),
    Attribute("Job", "NumberOfReplicas", "integer", "replicas that run or are queued", "Job.NumberOfReplicas < 3"),
    Attribute("Job", "Attempts", "integer", "attempts begun so far", "Job.Attempts < 5"),
    Attribute("Job", "Failures", "integer", "attempts that the task itself failed", "Job.Failures == 0"),
    Attribute("Job", "Losses", "integer", "attempts that were lost with their host", "Job.Losses < 3"),
    Attribute("Job", "Cpus", "integer", "cores that the task asked for", "Host.Cpus >= 2 * Job.Cpus"),
    Attribute("Job", "Memory", "integer", "memory in MB that the task asked for", "Host.Memory >= 2 * Job.Memory"),
    Attribute("Job", "GpuCount", "real", "GPUs that the task asked for", "Job.GpuCount > 0"),
    Attribute(
        "Job", "Hash", "real", "a fixed number in [0, 1) for every task, in place of random()", "Job.Hash < 0.05"
    ),
    Attribute("Job", "Index", "integer", "number of the task in its bag", "Job.Index <= 100"),
    Attribute("BOT", "Name", "string", "name of the bag", 'BOT.Name == "fit"'),
    Attribute("BOT", "Owner", "string", "who submitted it", "BOT.Owner == Host.owner ? 10 : 1"),
    Attribute("BOT", "Priority", "real", "priority given at submission", "BOT.Priority * Host.Speed"),
    Attribute("BOT", "JobsTotal", "integer", "tasks in the bag", "BOT.JobsTotal > 1000"),
    Attribute("BOT", "JobsLeft", "integer", "tasks without a result", "BOT.JobsLeft < 2000"),
    Attribute("BOT", "JobsDone", "integer", "tasks with a result", "BOT.JobsDone > 0"),
    Attribute("BOT", "JobsQueued", "integer", "tasks not sent yet", "BOT.JobsQueued == 0"),
    Attribute("BOT", "JobsRunning", "integer", "tasks being run", "BOT.JobsRunning < 100"),
    Attribute("BOT", "JobsFailed", "integer", "tasks given up", "BOT.JobsFailed == 0"),
    Attribute("BOT", "Tail", "boolean", "the bag is in its tail phase", "!BOT.Tail || Host.ErrorRate < 0.01"),
    Attribute("BOT", "DeadlineTime", "real", "when the bag should be done", "BOT.DeadlineTime - Now < 600"),
    Attribute("BOT", "TimeLeft", "real", "seconds until DeadlineTime", "BOT.TimeLeft < 600"),
    Attribute("BOT", "SubmitTime", "real", "when the bag was submitted", "Now - BOT.SubmitTime > 3600"),
    Attribute("Queue", "BOTsInQueue", "integer", "bags that are not finished", "Queue.BOTsInQueue == 1"),
    Attribute("Pool", "Name", "string", "name of the pool", 'Pool.Name == "cluster"'),
    Attribute("Pool", "Kind", "string", "local, self, site or emulated", 'Pool.Kind != "self"'),
    Attribute("Pool", "Limit", "integer", "most workers queued and running", "Pool.Limit > 10"),
    Attribute("Pool", "Queued", "integer", "workers asked for that have not joined yet", "Pool.Queued < 50"),
    Attribute("Pool", "Running", "integer", "workers that run", "Pool.Running > 0"),
    Attribute("Pool", "BestTimeout", "real", "best time to give a silent attempt up, in seconds", "Pool.BestTimeout"),
    Attribute(
        "Pool", "LatencyQuantile95", "real", "95 of 100 attempts end by then, in s", "2 * Pool.LatencyQuantile95"
    ),
    Attribute("Pool", "Price", "real", "dollars for an hour of one worker", "Pool.Price < 0.1"),
)
REPLICA_ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("Job.Replica1", "Name", "string", "JOB.TASK_ATTEMPT", 'Job.Replica1.Name != "fit.17_1"'),
    Attribute("Job.Replica1", "SentTime", "real", "when the replica was sent", "Now - Job.Replica1.SentTime > 1800"),
    Attribute("Job.Replica1", "Host", "ad", "its host, as Host", "Job.Replica1.Host.ErrorRate > 0.1"),
)


# Pure functions of the ClassAd library: the same arguments always give the same value.
# fmt: off
FUNCTIONS = (
    "allCompare", "anyCompare", "avg", "bool", "ceil", "ceiling", "floor", "identicalMember", "ifThenElse",
    "int", "isBoolean", "isError", "isInteger", "isList", "isReal", "isString", "isUndefined", "join", "max",
    "member", "min", "pow", "quantize", "real", "regexp", "regexpMember", "regexps", "replace", "replaceAll",
    "round", "size", "strcat", "strcmp", "stricmp", "string", "stringListsIntersect", "substr", "sum",
    "toLower", "toUpper", "version_in_range", "versioncmp", "versionEQ", "versionGE", "versionGT", "versionLE",
    "versionLT",
)
# fmt: on
_CLOCK = "write Now: the engine's time in seconds, the same live, in simulation and in replay"
# Refused, because the answer would not be the same when a log is replayed: name -> what to write instead.
REFUSED = {
    "time": _CLOCK,
    "currenttime": _CLOCK,
    "daytime": _CLOCK,
    "timezoneoffset": _CLOCK,
    "formattime": _CLOCK,
    "abstime": _CLOCK,
    "reltime": "write a number of seconds",
    "interval": "write a number of seconds",
    "random": "write Job.Hash: a fixed number in [0, 1) for every task",
    "eval": "write the expression itself",
    "debug": "use windfall policy test, which shows the value of every clause",
}
# Words of HTCondor's matchmaking, where an ad has no name of its own.
CONDOR_SCOPES = {"my": "BOT", "self": "BOT", "target": "Host", "other": "Host"}

POLICY_NICKNAMES = {
    "require": "JobRequirements",
    "requirements": "JobRequirements",
    "replicate": "ReplicationRequirements",
    "replication": "ReplicationRequirements",
    "pool": "GridPolicy",
    "poolpolicy": "GridPolicy",
    "grid": "GridPolicy",
}
_AD_NAMES = {ad.lower(): ad for ad in ADS} | NICKNAMES
POLICY_NAMES = {name.lower(): name for name in POLICIES}
_SPELLING = {(a.ad, a.name.lower()): a.name for a in ATTRIBUTES} | ALIASES
REPLICA_SPELLING = {"senttime": "SentTime", "host": "Host", "name": "Name"}


class Reference(Struct, frozen=True):
    """One name in a policy, resolved: the ad it reads and the steps from there on; no steps means the whole ad.

    `ad` is one of ADS, or 'Now', or 'Policy' for another policy of the same bag (`Deadline = 2000 * Concurrency`).
    `known` says that Windfall itself sets the attribute, in exactly this spelling.
    """

    written: tuple[str, ...]
    ad: str
    steps: tuple[str, ...] = ()
    known: bool = False

    def __str__(self) -> str:
        return ".".join((self.ad, *self.steps)) if self.ad in ADS else ".".join(self.written)


def is_steady(reference: Reference) -> bool:
    return reference.known and len(reference.steps) == 1 and reference.steps[0] in STEADY.get(reference.ad, ())


def policy_name(name: str) -> str | None:
    """The policy that a key of a file or an option means; None if there is no such policy."""
    plain = name.lower().replace("_", "").replace("-", "")
    return POLICY_NAMES.get(plain) or POLICY_NICKNAMES.get(plain)


def ad_name(name: str) -> str | None:
    return _AD_NAMES.get(name.lower())


def resolve(path: tuple[str, ...]) -> Reference:
    """What a dotted name refers to. A bare name belongs to BOT, as in GridBot's figure 3, where the policies live."""
    first = path[0].lower()
    if first == "now" and len(path) == 1:
        return Reference(path, "Now", known=True)
    if first == "numberofreplicas" and len(path) == 1:
        # Figure 3 writes it bare and means the task's.
        return Reference(path, "Job", ("NumberOfReplicas",), known=True)
    ad = ad_name(first)
    steps = path[1:] if ad else path
    ad = ad or "BOT"
    if ad == "BOT" and len(steps) == 1 and steps[0].lower() in POLICY_NAMES:
        return Reference(path, "Policy", (POLICY_NAMES[steps[0].lower()],), known=True)
    spelled = spelling(ad, steps)
    return Reference(path, ad, spelled or steps, known=spelled is not None)


def spelling(ad: str, steps: tuple[str, ...]) -> tuple[str, ...] | None:
    """The steps as Windfall spells them, or None for an attribute that Windfall does not set."""
    if not steps:
        return ()
    if ad == "Job" and (replica := REPLICA.fullmatch(steps[0])):
        return _replica_spelling(f"Replica{replica[1]}", steps[1:])
    known = _SPELLING.get((ad, steps[0].lower()))
    return (known,) if known and len(steps) == 1 else None


def _replica_spelling(replica: str, steps: tuple[str, ...]) -> tuple[str, ...] | None:
    if not steps:
        return (replica,)
    name = REPLICA_SPELLING.get(steps[0].lower())
    if name is None or (len(steps) > 1 and name != "Host"):
        return None
    rest = spelling("Host", steps[1:])
    return None if rest is None else (replica, name, *rest)


def nearest_attribute(
    reference: Reference, extra: Mapping[str, Iterable[str]], any_distance: bool = False
) -> str | None:
    """The known name that an unknown one was probably meant to be: in its own ad, or as it stands in another.

    With `any_distance` the nearest of its own ad, however far.
    """
    prefix, ad, name, rest = _place(reference)
    if ad == "BOT" and (near := _close(name, {policy: policy for policy in POLICY_NAMES.values()})):
        return near
    own = {n: n for n in extra.get(ad, ())} | {a.name: a.name for a in (*ATTRIBUTES, *REPLICA_ATTRIBUTES) if a.ad == ad}
    if rest:
        # Only these have attributes of their own.
        own = {"Replica1": f"Replica{_number(name)}"} if ad == "Job" else {"Host": "Host"}
    # Hosts and bags carry names of their users' own; the other ads do not, so a wilder guess is safe there.
    similar = 0.0 if any_distance else MIN_SIMILARITY if ad in ("Host", "BOT") else 0.6
    if near := _close(name, own, similar) or _slipped(name, own):
        found = resolve((*prefix, near, *rest))
        return str(found) if found.known or not rest else nearest_attribute(found, extra, any_distance)
    if len(reference.written) == 1:
        elsewhere = {a.name: f"{a.ad}.{a.name}" for a in reversed(ATTRIBUTES)}
        return near if (near := _close(name, elsewhere)) else _close(name, {"Now": "Now"})
    return None


def nearest_shared(name: str) -> str | None:
    """The attribute most like this one that exists for all tasks of a bag at once; None where none is like it."""
    seen = [a for a in reversed(ATTRIBUTES) if a.ad != "Job" or a.name in SHARED_BY_TASKS]
    return _close(name, {a.name: f"{a.ad}.{a.name}" for a in seen}, similar=0.6)


def _place(reference: Reference) -> tuple[tuple[str, ...], str, str, tuple[str, ...]]:
    """(the names before the first one that is wrong, the ad whose vocabulary applies, the wrong name, those behind)."""
    ad, steps = reference.ad, reference.steps
    if ad != "Job":
        return (ad,), ad, steps[0], ()  # an attribute of these has no attributes
    if not REPLICA.fullmatch(steps[0]):
        return (ad,), ad, steps[0], steps[1:]
    if len(steps) > 2 and steps[1].lower() == "host":
        return (ad, *steps[:2]), "Host", steps[2], ()
    return (ad, steps[0]), "Job.Replica1", steps[1], steps[2:]


def is_of_replicas_host(reference: Reference) -> bool:
    """Whether it names an attribute of the host of a replica, `Job.Replica1.Host.rack`: hosts have tags."""
    steps = reference.steps
    return (
        reference.ad == "Job" and len(steps) == 3 and bool(REPLICA.fullmatch(steps[0])) and steps[1].lower() == "host"
    )


def _number(name: str) -> str:
    """The number of the replica that a misspelt name means."""
    digits = re.sub(r"\D", "", name).lstrip("0")
    return digits or "1"


def _close(name: str, candidates: Mapping[str, str], similar: float = MIN_SIMILARITY) -> str | None:
    lower = {candidate.lower(): written for candidate, written in candidates.items()}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=similar)
    return lower[near[0]] if near else None


def _slipped(name: str, candidates: Mapping[str, str]) -> str | None:
    """The candidate that differs by two letters changed over: short names are then less alike than they look."""
    lower = {candidate.lower(): written for candidate, written in candidates.items()}
    letters = list(name.lower())
    for at in range(len(letters) - 1):
        swapped = "".join((*letters[:at], letters[at + 1], letters[at], *letters[at + 2 :]))
        if swapped in lower:
            return lower[swapped]
    return None


def existing(path: tuple[str, ...], extra: Mapping[str, Iterable[str]]) -> str:
    """This name if it exists, else the nearest that does: in its ad, or as it stands in another."""
    reference = resolve(path)
    if reference.known:
        return str(reference)
    if near := nearest_attribute(reference, extra) or inner(path) or _elsewhere(path[-1]):
        return near
    return nearest_attribute(reference, extra, any_distance=True) or str(reference)


def inner(path: tuple[str, ...]) -> str | None:
    """`Host.Memory` of `BOT.Host.Memory`: an ad that is looked for inside another."""
    for at in range(1, len(path) - 1):
        if ad_name(path[at]) and (found := resolve(path[at:])).known:
            return str(found)
    return None


def _elsewhere(name: str) -> str | None:
    """The attribute of this name in some ad, that of a task before that of a host."""
    order = ("Job", "Host", "BOT", "Pool", "Queue")
    found = [a for a in ATTRIBUTES if a.name.lower() == name.lower()]
    return next((f"{a.ad}.{a.name}" for a in sorted(found, key=lambda a: order.index(a.ad))), None)


def nearest(name: str, candidates: Iterable[str], similar: float = MIN_SIMILARITY) -> str | None:
    """The candidate that a misspelt name was probably meant to be."""
    return _close(name, {candidate: candidate for candidate in candidates}, similar)

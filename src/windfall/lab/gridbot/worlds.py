"""The worlds of GridBot's experiments as scenarios: what the paper states, and what had to be assumed. Pure.

From the paper: the grids and their hosts, one in ten tasks of 20 to 60 minutes lost to preemption in collaborative
grids (exponential stays of 6 h 20 min give that), rare other faults there, frequent ones among volunteers, whose run /
turnaround lies between 0.01 and 1 and is 0.3 on average; no heartbeat, so that silence is noticed by the deadline.
Assumed: the number of hosts present at a time (derived from the printed processor hours and turnarounds), queue waits
(minutes to hours), the share of faulty hosts, and deadlines where none is printed. Replicas wait in the queue, as
algorithm 2 is printed; the length of its cycle is not printed and is 60 s here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windfall.sim.scenario import Scenario, check

Json = dict[str, Any]
WHERE = Path("lab-gridbot.toml")

STAY = {"law": "exponential", "mean": "6h20m"}
ERRORS = "(Host.ErrorRate + Host.LossRate)"
RUNS_ON = "Job.Replica1.Host"


def any_replica(condition: str) -> str:
    """An expression that is true if `condition` holds for the host of at least one replica (HOST in the text).

    There are at most four replicas when a fifth is considered. A missing one is undefined, so the others decide."""
    return "(" + " || ".join(condition.replace("HOST", f"Job.Replica{n}.Host") for n in range(1, 5)) + ")"


BAD_REPLICA = any_replica("HOST.ErrorRate + HOST.LossRate > 0.01 || HOST.JobsToday == 0")


def once_in(seconds: str) -> str:
    """Replicate a task once per `seconds`: the n-th time when its first attempt was sent n x `seconds` ago."""
    return f"Now - Job.Replica1.SentTime > Job.NumberOfReplicas * {seconds}"


# The five pairs of the replication table: (replication, scheduling) -> policies.
REPLICATION = {
    "permissive": "Job.NumberOfReplicas < 5",
    "restrictive": f"Job.NumberOfReplicas < 5 && ({BAD_REPLICA} || Now - Job.Replica1.SentTime > 1800)",
    "disabled": "false",
}
SCHEDULING = {
    "permissive": "true",
    "restrictive": f"!BOT.Tail || ({ERRORS} <= 0.01 && Host.JobsToday > 0)",
}


def grid(name: str, hosts: int, scale: float, **more: Any) -> Json:
    """A collaborative grid: hosts are preempted without notice; faults are rare and limited to a few hosts."""
    return {
        "name": name,
        "hosts": max(1, round(hosts * scale)),
        "speed": {"law": "lognormal", "median": 1.0, "sigma": 0.2},
        "arrive": {"law": "uniform", "low": "0s", "high": "20m"},
        "wait": {"law": "lognormal", "median": "10m", "sigma": 1.2},
        "stay": STAY,
        "identity": "new",
        "idle": "30m",
        "errors": 0.002,
        "faulty": 0.02,
        "faulty_errors": 0.3,
        "heartbeat": "never",
        "long_poll": False,
        "poll": "30s",
        "poll_max": "4m",
    } | more


def collaborative(scale: float, hosts: int = 2600) -> list[Json]:
    shares = {"egee": 0.45, "osg": 0.33, "madison": 0.22}
    return [grid(name, round(hosts * share), scale) for name, share in shares.items()]


def cluster(scale: float) -> Json:
    """The Technion's own cluster: 100 cores, no preemption."""
    return {
        "name": "cluster",
        "hosts": max(1, round(100 * scale)),
        "heartbeat": "never",
        "long_poll": False,
        "poll": "30s",
        "poll_max": "4m",
    }


def volunteers(hosts: int, scale: float, **more: Any) -> Json:
    """Superlink@Technion: hosts come and go, return after 1 to 100 run times, and are faulty more often."""
    return {
        "name": "volunteers",
        "hosts": max(1, round(hosts * scale)),
        "speed": {"law": "lognormal", "median": 0.9, "sigma": 0.45},
        "arrive": {"law": "uniform", "low": "0s", "high": "8h"},
        "stay": {"law": "exponential", "mean": "8d"},
        "wait": {"law": "exponential", "mean": "2d"},
        "presence": {"law": "power", "low": 0.01, "high": 1.0, "shape": 2.41},
        "presence_of": "attempt",
        "errors": 0.01,
        "faulty": 0.05,
        "faulty_errors": 0.4,
        "black_holes": 0.005,
        "report": "batch",
        "heartbeat": "never",
        "long_poll": False,
        "poll": "5m",
        "poll_max": "2h",
    } | more


def bag(name: str, tasks: int, low: str, high: str, policy: Json, **more: Any) -> Json:
    run = {"law": "uniform", "low": low, "high": high}
    return {"name": name, "tasks": tasks, "run": run, "policy": policy, "max_failures": 30, "max_losses": 60} | more


def build(name: str, pools: list[Json], bags: list[Json], until: str = "60d", **server: Any) -> Scenario:
    settings = {"lease": "never", "max_replicas": 5, "replication": "queued"} | server
    return check({"name": name, "until": until, "server": settings, "pool": pools, "bag": bags}, WHERE)


TABLE_UNTIL_H = 12
"""A run of the replication table that has not ended by then never does.

Its last task was lost, the loss was noticed by the deadline after 67 minutes, and by then all hosts that the
restrictive scheduling calls reliable had left after 30 minutes without work. New ones have no success to show.
"""


def replication_run(
    replication: str, scheduling: str, scale: float = 1.0, tasks: int | None = None, kind: str = "queued"
) -> Scenario:
    """One bag of 30,000 tasks of 10 to 15 minutes on collaborative grids; deadline of figure 3 (2 * 2000 s a core).

    `kind`: replicas wait in the queue, as printed, or are made for idle slots.
    """
    policy: Json = {"Deadline": "4000", "JobRequirements": SCHEDULING[scheduling]}
    if replication != "ours":
        policy["ReplicationRequirements"] = REPLICATION[replication]
    work = bag("bag", round(30_000 * scale) if tasks is None else tasks, "10m", "15m", policy)
    name = f"{replication}/{scheduling}, {kind}"
    return build(name, collaborative(scale), [work], f"{TABLE_UNTIL_H}h", replication=kind)


def naive_run(naive: bool, scale: float) -> Scenario:
    """Figure 5: a medium bag on all grids. Plain BOINC: one deadline of three days and nothing else."""
    policy: Json = {"Deadline": "259200", "ReplicationRequirements": "false"}
    if not naive:
        policy = {
            "JobRequirements": '!BOT.Tail || Host.Pool != "volunteers"',
            "Deadline": 'Host.Pool == "volunteers" ? 259200 : 6000',
            "ReplicationRequirements": (
                f'Job.NumberOfReplicas < 5 && ({RUNS_ON}.Pool == "volunteers" || Now - Job.Replica1.SentTime > 3000)'
            ),
        }
    pools = [*collaborative(scale, 2000), cluster(scale), volunteers(5000, scale)]
    work = bag("bag", round(28_000 * scale), "20m", "40m", policy)
    return build("unmodified BOINC" if naive else "GridBot", pools, [work])


CONDOR_LEASE_S = 2400
"""The default of Condor's job lease: a job whose host has fallen silent is matched again after 40 minutes."""
MADISON_HOSTS = 200
"""Assumed: 3,000 jobs of 165 s on average are 137 processor hours, and GridBot took 53 minutes."""


def condor_run(system: str, scale: float) -> Scenario:
    """3,000 jobs of 30 s to 5 minutes on the Madison pool: by GridBot, by GridBot without its policy, by the rival.

    The rival is a model of a scheduler without GridBot's mechanisms, not Condor itself: idle hosts get a job at a
    negotiation every 5 minutes, and the next one when that is done; one job a slot and none ahead; no replicas; all
    hosts are alike, whatever they did; a job that is lost is tried again when its lease of 40 minutes has run out.
    """
    longest_s = 300
    host: Json = {}
    policy: Json = {"Deadline": "600", "ReplicationRequirements": "false"}
    if system == "GridBot":
        risky = any_replica("HOST.ErrorRate + HOST.LossRate > 0.1")
        policy = {"Deadline": "600", "ReplicationRequirements": f"Job.NumberOfReplicas < 5 && {risky}"}
    elif system == "Condor-like":
        host = {"prefetch": 0, "poll": "5m", "poll_max": "5m"}
        policy = {"Deadline": str(CONDOR_LEASE_S + longest_s), "ReplicationRequirements": "false", "Concurrency": "1"}
    work = bag("bag", round(3000 * scale), "30s", f"{longest_s}s", policy)
    return build(system, [grid("madison", MADISON_HOSTS, scale, **host)], [work])


def optimisation_run(all_grids: bool, scale: float) -> Scenario:
    """29,000 jobs of 10 to 15 minutes on collaborative grids, or on all (section 6.4): the first hour."""
    policy = {"JobRequirements": '!BOT.Tail || Host.Pool != "volunteers"', "Rank": "Host.Speed", "Deadline": "4000"}
    pools = collaborative(scale)
    if all_grids:
        pools += [cluster(scale), volunteers(15_000, scale, arrive={"law": "uniform", "low": "0s", "high": "1h"})]
    work = bag("bag", round(29_000 * scale), "10m", "15m", policy)
    return build("all grids" if all_grids else "collaborative grids", pools, [work], "1h")


def requests_run(split: int, report: str, scale: float) -> Scenario:
    """42,200 jobs of 10 to 50 minutes, each split into `split`, on all grids: the first three hours of a run in which
    hosts hold five jobs and report them by `report`."""
    policy = {"Concurrency": "5", "Deadline": 'Host.Pool == "volunteers" ? 259200 : 14400'}
    pools = [*collaborative(scale), cluster(scale)]
    pools = [pool | {"prefetch": 4, "report": report} for pool in pools]
    pools.append(volunteers(15_000, scale, prefetch=4, arrive={"law": "uniform", "low": "0s", "high": "8d"}))
    work = bag("bag", round(42_200 * scale) * split, f"{10 // split}m", f"{50 // split}m", policy)
    return build(f"{report}, split into {split}", pools, [work], "3h", spread_bundles=False)


def ranked_run(scale: float) -> Scenario:
    """Figure 7: 50 bags of 1,200 tasks of three minutes, ranked 1 to 50; volunteers ask and are turned away."""
    policy = {
        "JobRequirements": 'Host.Pool != "volunteers"',
        "Rank": "BOT.Priority",
        "Deadline": "2000",
        "ReplicationRequirements": "Job.NumberOfReplicas < 3 && Now - Job.Replica1.SentTime > 1000",
    }
    work = bag("bag", round(1200 * scale), "2m", "4m", policy, copies=50, priority=1.0, priority_step=1.0)
    pools = [*collaborative(scale, 1600), cluster(scale), volunteers(3000, scale, poll="10m", poll_max="4h")]
    return build("50 ranked bags", pools, [work])


def small_bags_run(scale: float) -> Scenario:
    """Figure 8: five copies of one small bag under different policies. The table of figure 8(b) is not legible in our
    copy: B1 to B3 differ in Concurrency here (10, 5, 1), B4 asks for reliable hosts, B5 for the cluster in its tail.
    Priority 1 goes first: B1 and B2 are still running when B5 reaches its tail, the text says."""
    everywhere = 'Host.Pool != "volunteers"'
    reliable = f"{everywhere} && {ERRORS} <= 0.05 && (Host.JobsToday > 0 || BOT.JobsDone < 100)"
    wanted = {
        "B1": (10, everywhere),
        "B2": (5, everywhere),
        "B3": (1, everywhere),
        "B4": (1, reliable),
        "B5": (1, f'BOT.Tail ? Host.Pool == "cluster" : {everywhere}'),
    }
    bags = [
        bag(name, round(1200 * scale), "2m", "4m", {
            "JobRequirements": requirements,
            "Rank": "BOT.Priority",
            "Concurrency": str(concurrency),
            "Deadline": "Concurrency * 2000",
            "ReplicationRequirements": f"Job.NumberOfReplicas < 5 && {once_in('Concurrency * 1000')}",
        }, priority=float(len(wanted) - place))
        for place, (name, (concurrency, requirements)) in enumerate(wanted.items(), 1)
    ]  # fmt: skip
    # GridBot's clients keep what they were sent to the end.
    return build("five small bags", [*collaborative(scale, 700), cluster(scale)], bags, spread_bundles=False)


BUFFER = 1500
"""Jobs of the scheduling buffer (section 7): the tail begins when about this many are unsent (section 6.3)."""
RISKY = any_replica("HOST.ErrorRate + HOST.LossRate > 0.01 || HOST.JobsToday < 45")
"""A host of a high error rate as BOINC counts it: 0.1 for a new host, 0.95 times that after every valid result."""


def replication_with_volunteers_run(scale: float, threshold: int = 2000) -> Scenario:
    """Figure 9: four bags of 30,000 under different replication and scheduling policies, the community included. The
    table of figure 9(b) is not legible in our copy; the pairs follow the text. Concurrency and Deadline outside the
    community are those of figure 3 for one core."""
    hosts, community, fast = 2600, 8000, "Job.NumberOfReplicas < 5"
    left = round(threshold * scale)
    no_volunteers = '!BOT.Tail || Host.Pool != "volunteers"'
    pairs = {
        "R1": (fast, "true"),
        "R2": (fast, no_volunteers),
        "R3": (f"{fast} && {RISKY} && {once_in('900')}", no_volunteers),
        "R4": (f"{fast} && BOT.JobsLeft < {left}", f'BOT.JobsLeft >= {left} || Host.Pool != "volunteers"'),
    }
    bags = [
        bag(name, round(30_000 * scale), "10m", "15m", {
            "JobRequirements": requirements,
            "Rank": "BOT.Priority",
            "Concurrency": "2",
            "Deadline": 'Host.Pool == "volunteers" ? 259200 : 4000',
            "ReplicationRequirements": replication,
        }, priority=float(-place + 10))
        for place, (name, (replication, requirements)) in enumerate(pairs.items())
    ]  # fmt: skip
    # They have been there for months: none waits to come for the first time.
    pools = [*collaborative(scale, hosts), cluster(scale), volunteers(community, scale, arrive="0s", wait="0s")]
    tail_enter = BUFFER / (hosts + community)
    return build("four bags, volunteers included", pools, bags, spread_bundles=False, tail_enter=tail_enter)

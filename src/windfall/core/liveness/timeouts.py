"""How long an attempt may stay silent, learned per pool and per bag from what came back and what did not. Pure.

The default of the policy `Deadline` (Timeouts paper): GridBot leaves it to the user, who guesses. A record says
which latencies are learned from, and the advice that follows from those known before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windfall.core.decisions import ACCEPTED
from windfall.core.events import Result
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.hosts.learned import Advice
from windfall.core.state.jobs.attempts import Attempt
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.jobs.columns import DONE
from windfall.core.state.state import State
from windfall.timeouts.learning.memory import Counts, class_key
from windfall.timeouts.learning.online import LEAST, Sketch, is_stale

if TYPE_CHECKING:
    from windfall.api.explained import Timeout

PRIOR_S = 86400.0
"""Before enough has been seen: a day."""
FLOOR_S = 60.0
CAP_S = 7 * 86400.0
RUN_FACTOR = 3.0
"""The run times of a bag's tasks differ; this many times their mean is not yet silence."""
WELL_KNOWN, LEARN_EVERY = 2000, 8
"""Above this many attempts of a pool, only every eighth report is learned from."""
SILENT_LOOKED_AT = 5000
"""Running tasks of a bag that one decision about a timeout looks at, the longest running first."""
SENT_LATER = 64
"""Tasks in a row whose attempts are all too young to count as silent, behind which no older ones are looked for."""
CLASS_LEAST = 5
"""Results of a class of a workflow's tasks before its run times count."""
LONGEST_FACTOR = 2.0
"""A task of a workflow may run this many times as long as the longest of its class so far."""
OBSERVED_PER_RECORD = 4
"""Results of one report that are learned from: short tasks come in hundreds, and are alike."""


def key_of(pool: str, bag: Bag) -> str:
    return class_key(pool, bag._terms.rules.name)


def lessons_of_results(
    state: State, host: Host, results: Sequence[Result], verdicts: Sequence[int]
) -> tuple[list[int], Collection[Advice]]:
    """Places of the results to learn latencies from, and the advice that follows from what was known before."""
    places: list[int] = []
    advice: dict[int, Advice] | None = None
    asked, learns = 0, True
    for place, verdict in enumerate(verdicts):
        if verdict != ACCEPTED:
            continue
        job = results[place].job
        if job != asked:
            # Nearly always all are of one job: asked once.
            asked, bag = job, state.bags[job]
            counts = state.learned.latencies.counts_of(host.pool, bag._terms.rules.name, LEAST)
            learns = counts is None or counts.samples <= WELL_KNOWN or not state.seq % LEARN_EVERY
            if learns and counts is not None and (better := _advise(state, host.pool, bag, counts)) is not None:
                advice = {} if advice is None else advice
                advice[job] = better
        if learns:
            places.append(place)
            if len(places) >= OBSERVED_PER_RECORD:
                break
    return places, () if advice is None else advice.values()


def silence_s(state: State, host: Host, bag: Bag, waited_s: float) -> float | None:
    """Seconds that the latency of an attempt given up now exceeds (censored); None if nothing is learned from it."""
    if passes_over(state, host, bag):
        return None
    waited_s -= _run_s(bag)
    return waited_s if waited_s > 0 else None


def passes_over(state: State, host: Host, bag: Bag) -> bool:
    """Whether to pass over the reports between: of what came back and of what did not alike, or else the share of the
    lost, and with it the timeout, would be wrong by as much."""
    if not state.seq % LEARN_EVERY:
        return False
    counts = state.learned.latencies.counts_of(host.pool, bag._terms.rules.name, LEAST)
    return counts is not None and counts.samples > WELL_KNOWN


def _run_s(bag: Bag) -> float:
    """What a task of this bag may run: its wall time if it has one, else a multiple of the mean so far."""
    classes = bag._terms.classes
    if len(classes) == 1:
        wall_s = classes[0].wall_s or 0.0
    else:
        wall_s = max((rules.wall_s or 0.0 for rules in classes), default=0.0)
    mean_s = bag.tally.run_s / bag.counts[DONE] if bag.counts[DONE] else 0.0
    return wall_s or RUN_FACTOR * mean_s


def advise_all(state: State, about: Mapping[str, tuple[str, Bag]]) -> list[Advice]:
    found: list[Advice] = []
    for pool, bag in about.values():
        counts = state.learned.latencies.counts_of(pool, bag.rules.name, LEAST)
        if counts is not None and (advice := _advise(state, pool, bag, counts)) is not None:
            found.append(advice)
    return found


def _advise(state: State, pool: str, bag: Bag, counts: Counts) -> Advice | None:
    """Advice where enough has been learned since the last: about every twentieth attempt more. None: as before."""
    if counts.samples < LEAST:
        return None
    known = state.learned.advice.get(key_of(pool, bag))
    if known is not None and not is_stale(known.decision, counts):
        return None
    rules, silent_s = state.settings.bookkeeping.latencies, _silent_s(state, pool, bag)
    sketch = Sketch.of(counts).with_silent(silent_s, rules)
    # The tasks of a workflow differ: what they run is added by class, when a deadline is set.
    run_s = _run_s(bag) if bag.shape is None else 0.0
    steps = sketch.curve(rules)
    decision = sketch.best_timeout(prior_s=PRIOR_S, floor_s=FLOOR_S, cap_s=CAP_S, run_s=run_s, rules=rules, steps=steps)
    of_pool = counts is state.learned.latencies.pools.get(pool)
    if decision.basis == "prior" and known is not None and known.decision.of_pool and not of_pool:
        return None  # what the pool has taught is better than nothing, until enough of the bag have come back
    decision = replace(decision, running=len(silent_s), of_pool=of_pool)
    return Advice(pool, bag.rules.name, decision, sketch.quantile(0.95, rules, steps))


def _silent_s(state: State, pool: str, bag: Bag) -> list[float]:
    """Latencies so far of the bag's attempts in a pool that have been out for longer than a task may run."""
    if bag.shape is not None:
        return []
    sent_before, hosts = state.t - _run_s(bag), state.hosts
    silent = _sent_before(bag, sent_before)
    if len(hosts.by_pool) > 1 or pool not in hosts.by_pool:
        of = hosts.get
        silent = [attempt for attempt in silent if (host := of(attempt.host)) is not None and host.pool == pool]
    return [sent_before - attempt.sent for attempt in silent]


def _sent_before(bag: Bag, t: float) -> list[Attempt]:
    """The running attempts of a bag that were sent before `t`, of the tasks that have been running longest.

    Tasks stand in the order of their first attempts: behind many in a row that were sent later, none is looked for.
    """
    found: list[Attempt] = []
    tasks = islice(bag.attempts.live.values(), SILENT_LOOKED_AT)
    while block := list(islice(tasks, SENT_LATER)):
        silent = [attempt for attempts in block for attempt in attempts if attempt.sent < t]
        if not silent:
            break
        found += silent
    return found


def deadline_s(state: State, bag: Bag, host: Host, t: float, index: int | None = None) -> float | None:
    """The learned timeout of the next attempt on this host, in seconds; None if no other host could take it over.

    `index`: the class of the task. In a workflow what the quick classes took says nothing about the others.
    """
    advice = state.learned.advice.get(class_key(host.pool, bag._terms.rules.name))
    if host.owner:
        # While too few have come back to learn from, the deadline of the pool holds, not the prior.
        if advice is None or advice.decision.basis == "prior":
            return _volunteer_s(state, bag, host, None)
        return _volunteer_s(state, bag, host, advice.decision.for_attempt(bag.tally.attempts))
    if not state.hosts.others_there(host, t, state.settings.lease_s):
        return None
    if advice is None:
        return PRIOR_S
    wait_s = advice.decision.for_attempt(bag.tally.attempts)
    if bag.shape is None:
        return wait_s
    run_s = None if index is None else class_run_s(bag, index)
    return PRIOR_S if run_s is None else min(wait_s + run_s, CAP_S)


def given_interruption_s(bag: Bag, task: int, seconds: float) -> float:
    """The timeout of a task of which an attempt had already run for some time when it was lost: it takes longer."""
    ran_s = bag.progress.interrupted_s.get(task)
    return seconds if ran_s is None else max(seconds, min(RUN_FACTOR * ran_s, CAP_S))


def _volunteer_s(state: State, bag: Bag, host: Host, learned_s: float | None) -> float:
    """The report deadline of a volunteer's host: what was learned, and never less than volunteers expect."""
    pool = state.supply.pools.get(host.pool)
    first_s, least_s = (0.0, 0.0) if pool is None else (pool.rules.deadline_s, pool.rules.least_deadline_s)
    return max(least_s, (first_s or CAP_S) if learned_s is None else learned_s)


def class_run_s(bag: Bag, index: int) -> float | None:
    """What a task of a named class of a workflow may run; None while too few have come back."""
    rules = bag.classes[index]
    if rules.wall_s:
        return rules.wall_s
    done, run_s, longest_s = bag.tally.by_class.get(index, (0.0, 0.0, 0.0))
    if not rules.name or done < CLASS_LEAST:
        return None
    return max(RUN_FACTOR * run_s / done, LONGEST_FACTOR * longest_s)


def pool_advice(state: State, pool: str) -> Advice | None:
    """The advice that rests on the most attempts of this pool, for `Pool.BestTimeout` and its like."""
    mine = [advice for advice in state.learned.advice.values() if advice.pool == pool]
    return max(mine, key=lambda advice: advice.decision.samples, default=None)


def all_shown(state: State, pool: str | None = None, bag: str | None = None) -> list[Timeout]:
    """What is known of every bag in every pool, of one pool or one bag alone if named: advice, or the prior so far."""
    learned, rules = state.learned, state.settings.bookkeeping.latencies
    found = [*learned.advice.values()]
    for key, counts in learned.latencies.classes.items():
        if key not in learned.advice:
            of_pool, _, of_bag = key.partition("\n")
            # Advice comes with the first result after enough have come back; until then the prior holds.
            least = max(LEAST, counts.samples + 1)
            decision = Sketch.of(counts).best_timeout(
                prior_s=PRIOR_S, floor_s=FLOOR_S, cap_s=CAP_S, rules=rules, least=least
            )
            found.append(Advice(of_pool, of_bag, decision, None))
    return [shown(one) for one in found if pool in (None, one.pool) and bag in (None, one.bag)]


def shown(advice: Advice) -> Timeout:
    """For people: which law, how many samples, what it expects, and what an error would cost."""
    decision = advice.decision
    return {
        "pool": advice.pool,
        "bag": advice.bag,
        "timeout_s": decision.timeout_s,
        "basis": decision.basis,
        "law": decision.law,
        "samples": decision.samples,
        "finished": decision.samples - decision.given_up,
        "running": decision.running,
        "given_up": decision.given_up,
        "lost": decision.lost,
        "expected_s": decision.expected_s,
        "half_s": decision.half_s,
        "double_s": decision.double_s,
        "latency_95_s": advice.latency_95_s,
        "because": decision.because,
    }

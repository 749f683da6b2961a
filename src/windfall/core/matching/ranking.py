"""Which bags want an asking host, and in which order (GridBot, algorithm 1 and section 6.4). Pure.

Most policies name nothing but the host. Bags that say the same of it are asked once: what a host costs is the number of
different sentences in the policies, not the number of bags, and bags that do not want it cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from windfall.core.matching.ads import Ad, bag_ad, class_ad
from windfall.core.matching.policy import NOTHING, UNREPLICATED, BagPolicy, Seen, Verdict
from windfall.core.matching.served import LeastServed
from windfall.core.state.hosts.hosts import Host
from windfall.core.state.jobs.bags import CROWD, Bag, Bags
from windfall.core.state.state import State
from windfall.numeric import np

if TYPE_CHECKING:
    from windfall.core.engine import Policies

UNLIMITED = 1 << 30
FEW = 16
"""Bags that can be asked one by one in the time that asking a crowd at once takes."""
Wants = tuple[Bag, BagPolicy, int, tuple[int, ...] | None]
"""A bag that wants a host, its policy, its Concurrency, and the classes of tasks that it is about (None: all)."""
Shapes = list[tuple[Ad, tuple[int, ...] | None]]
"""What tasks look like to policies, and the classes that look so (None: all)."""
Ads = tuple[Ad, Ad, Ad]
"""Host, queue and pool."""
REMEMBERED_HOSTS = 100_000


Deadlines = dict[tuple[int, int], float | None]


class Known(Struct):
    """What steady policies have said to a host, as long as its ad and its slots are these."""

    ad: dict[str, Any]
    slots: int
    groups: list[list[Wants]]
    deadlines_s: Deadlines = {}
    """By job and class, for those that were asked for. Not changed: hosts that were told the same share one."""


class Sentences:
    """The different texts of one policy among many bags, each compiled alone, and which of them each bag says."""

    def __init__(self, policies: Policies, name: str, bags: list[Bag]) -> None:
        numbers: dict[str | None, int] = {}
        said = [policies.of(bag.rules.policies).expressions.get(name) for bag in bags]
        self.of_bag = np.array([numbers.setdefault(text, len(numbers)) for text in said], dtype=np.intp)
        self._compiled = [None if text is None else policies.of({name: text}) for text in numbers]
        self.unsaid = numbers.get(None, -1)

    def verdicts(self, ads: Ads, t: float, seen: Seen) -> list[Verdict | None]:
        host, queue, pool = ads
        return [
            None if policy is None else policy.match(host, NOTHING, queue, pool, t, UNREPLICATED, seen)
            for policy in self._compiled
        ]


class Crowd:
    """The bags whose policies look at nothing but the host."""

    def __init__(self, policies: Policies, bags: list[Bag]) -> None:
        self.bags = bags
        self.policies = [policies.of(bag.rules.policies) for bag in bags]
        self._requirements = Sentences(policies, "JobRequirements", bags)
        self._ranks = Sentences(policies, "Rank", bags)
        self._concurrency = Sentences(policies, "Concurrency", bags)
        self._priorities = np.array([bag.rules.priority for bag in bags], dtype=float)

    def by_rank(self, ads: Ads, t: float, seen: Seen) -> Iterator[tuple[float, list[Wants]]]:
        """Those that want this host in groups of equal rank, the highest first."""
        wanted = [verdict is None or verdict.matches for verdict in self._requirements.verdicts(ads, t, seen)]
        chosen = np.flatnonzero(np.array(wanted)[self._requirements.of_bag])
        if not len(chosen):
            return
        values = np.array([0.0 if verdict is None else verdict.rank for verdict in self._ranks.verdicts(ads, t, seen)])
        said = self._ranks.of_bag[chosen]
        ranks = np.where(said == self._ranks.unsaid, self._priorities[chosen], values[said])
        caps = [
            UNLIMITED if verdict is None else verdict.concurrency
            for verdict in self._concurrency.verdicts(ads, t, seen)
        ]
        for rank in np.unique(ranks)[::-1].tolist():
            yield (
                rank,
                [
                    (self.bags[index], self.policies[index], caps[self._concurrency.of_bag[index]], None)
                    for index in chosen[ranks == rank].tolist()
                ],
            )


class Ranking:
    """The bags with tasks to hand out or to replicate, by what their policies look at. Made anew when these change."""

    def __init__(self, state: State, policies: Policies) -> None:
        self._plain: dict[float, list[Wants]] = {}
        self._looking: list[tuple[Bag, BagPolicy, Shapes | None]] = []
        self._ending: list[tuple[Bag, BagPolicy]] = []
        """Bags of which only replicas are left to make, and whose policies look at the bag."""
        alike = []
        for bag in [*state.bags.ready.values(), *state.bags.replicable()]:
            policy = policies.of(bag.rules.policies)
            if not bag.waiting and not policy.may_replicate:
                continue
            if not policy.expressions:
                self._plain.setdefault(bag.rules.priority, []).append((bag, policy, UNLIMITED, None))
            elif not policy.looks_at_bag:
                alike.append(bag)
            else:
                self._add(bag, policy)
        if len(alike) <= FEW:
            for bag in alike:
                self._add(bag, policies.of(bag.rules.policies))
            alike = []
        self._crowd = Crowd(policies, alike) if alike else None
        self.needs_ads = bool(alike or self._looking or self._ending)
        # Of several classes those count that have tasks waiting: these change without notice.
        steady = all(known is not None and policy.is_steady for _, policy, known in self._looking)
        self._is_steady = bool(self._looking) and steady and not self._ending and self._crowd is None
        self.known: dict[int, Known] = {}
        """What hosts were told the last time they asked, by their numbers: the same again while they are the same."""
        self._told: dict[tuple[Any, ...], list[list[Wants]]] = {}
        """Groups by what they say: hosts that are told the same share one list."""
        self._told_deadlines: dict[tuple[Any, ...], Deadlines] = {}
        """Deadlines by what they say, likewise: one dict for each host would be in no cache when it asks again."""
        self._least_served: dict[int, LeastServed] = {}
        """By the identity of a group in `for_all`."""
        self.for_all: list[list[Wants]] | None = None
        """The groups that every host gets, if no policy says anything."""
        if not self.needs_ads:
            self.for_all = [self._plain[rank] for rank in sorted(self._plain, reverse=True)]

    def least_served(self, group: list[Wants], bags: Bags, want: int) -> LeastServed | None:
        """A group that every host gets, in its order; None if all of it is looked at.

        That is so if it is small, if each of its bags can have some, and where replicas wait in queues: these come and
        go without notice.
        """
        if self.for_all is None or len(group) <= CROWD or not bags.crowded or bags.cycled:
            return None
        known = self._least_served.get(id(group))
        if known is None:
            known = self._least_served[id(group)] = LeastServed(group, bags)
        return known if len(known.unsent) > max(1, want) else None

    def remember(self, host: Host, groups: Iterable[list[Wants]]) -> Known | None:
        if not self._is_steady:
            return None
        if len(self.known) >= REMEMBERED_HOSTS:
            self.known.clear()
        listed = list(groups)
        said = tuple(tuple((bag.number, most, classes) for bag, _, most, classes in group) for group in listed)
        known = self.known[host.number] = Known(host.ad, host.slots, self._told.setdefault(said, listed))
        return known

    def remember_deadline(self, known: Known, key: tuple[int, int], seconds: float | None) -> None:
        told = {**known.deadlines_s, key: seconds}
        known.deadlines_s = self._told_deadlines.setdefault(tuple(told.items()), told)

    def _add(self, bag: Bag, policy: BagPolicy) -> None:
        """A bag that is asked on its own."""
        if bag.waiting:
            self._looking.append((bag, policy, shapes(bag) if len(bag.classes) == 1 else None))
        else:
            self._ending.append((bag, policy))

    def by_rank(self, ads: Ads, t: float, seen: Seen) -> Iterable[list[Wants]]:
        """Groups of equal rank, the highest first. Lazy: a host that is content with the first costs no more."""
        ranked = self._plain
        if self._looking or self._ending:
            ranked = {rank: list(group) for rank, group in ranked.items()}
        for bag, policy, known in self._looking:
            _ask(bag, policy, known or shapes(bag), ads, t, ranked)
        for bag, policy in self._ending:
            _ask_ending(bag, policy, ads, t, ranked)
        if self._crowd is not None:
            return _merged(ranked, self._crowd.by_rank(ads, t, seen))
        return ranked.values() if len(ranked) == 1 else [ranked[rank] for rank in sorted(ranked, reverse=True)]


def _merged(ranked: dict[float, list[Wants]], crowd: Iterator[tuple[float, list[Wants]]]) -> Iterator[list[Wants]]:
    """Both in the order of rank; the crowd behind the others of its rank."""
    following = next(crowd, None)
    for rank in sorted(ranked, reverse=True):
        while following is not None and following[0] > rank:
            yield following[1]
            following = next(crowd, None)
        group = ranked[rank]
        if following is not None and following[0] == rank:
            group = group + following[1]
            following = next(crowd, None)
        yield group
    while following is not None:
        yield following[1]
        following = next(crowd, None)


def _ask(bag: Bag, policy: BagPolicy, known: Shapes, ads: Ads, t: float, ranked: dict[float, list[Wants]]) -> None:
    """The answer of one bag, for each shape of its tasks; usually they all get the same."""
    host, queue, pool = ads
    about = bag_ad(bag, t)
    answers: list[tuple[Verdict, tuple[int, ...] | None]] = []
    for job, classes in known:
        verdict = policy.match(host, about, queue, pool, t, job)
        if verdict.matches:
            answers.append((verdict, classes))
    for verdict, classes in _joined(answers) if len(answers) > 1 else answers:
        concurrency = verdict.concurrency if "Concurrency" in policy.expressions else UNLIMITED
        ranked.setdefault(verdict.rank, []).append((bag, policy, concurrency, classes))


def _ask_ending(bag: Bag, policy: BagPolicy, ads: Ads, t: float, ranked: dict[float, list[Wants]]) -> None:
    """The place of a bag's replicas. Whether one may run here depends on the task: asked when its turn comes."""
    host, queue, pool = ads
    job = class_ad(bag.classes[0]) if len(bag.classes) == 1 else UNREPLICATED
    verdict = policy.standing(host, bag_ad(bag, t), queue, pool, t, job)
    concurrency = verdict.concurrency if "Concurrency" in policy.expressions else UNLIMITED
    ranked.setdefault(verdict.rank, []).append((bag, policy, concurrency, None))


def _joined(
    answers: list[tuple[Verdict, tuple[int, ...] | None]],
) -> Iterable[tuple[Verdict, tuple[int, ...] | None]]:
    """Classes that got the same answer together."""
    found: dict[Verdict, tuple[int, ...]] = {}
    for verdict, classes in answers:
        found[verdict] = tuple(sorted(found.get(verdict, ()) + (classes or ())))
    return found.items()


def shapes(bag: Bag) -> Shapes:
    """What the unsent tasks of a bag look like to its policies, and the classes that look so."""
    if len(bag.classes) == 1:
        return [(class_ad(bag.classes[0]), None)]
    found: dict[tuple[float, int], tuple[Ad, tuple[int, ...]]] = {}
    for index, rules in enumerate(bag.classes):
        if bag.queues.by_class[index].size:
            key = (rules.cpus, rules.memory_bytes)
            before = found[key][1] if key in found else ()
            found[key] = (class_ad(rules), (*before, index))
    return list(found.values())

"""An engine with one cloud of two offers, and jobs that rent from it, one event at a time."""

from __future__ import annotations

from typing import Any

from tests.support.engine.hand import Hand
from windfall.core.decisions import PlanTaken
from windfall.core.events import (
    MachineEnded,
    MachineHibernated,
    MachineStarted,
    OffersConfigured,
    PlanProposed,
    TaskClass,
)
from windfall.core.state.jobs.bags import Bag
from windfall.core.state.renting import fleet
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer

SPOT = Offer(name="small", pool="cloud", price_usd=0.25, cores=2, cycle_s=900.0, lag_s=60.0, market="spot", limit=3)


SURE = Offer(name="sure", pool="cloud", price_usd=1.0, cores=2, cycle_s=900.0, lag_s=60.0, limit=2)


KNOWN = TaskClass(estimate_s=300.0, estimate_is_exact=True)


class Cloud(Hand):
    """One cloud with two offers, and a job on it."""

    def __init__(self) -> None:
        super().__init__()
        self.step(OffersConfigured(self.t, "cloud", [SPOT, SURE]))

    def rent(self, count: int = 4, classes: list[TaskClass] | None = None, **rules: Any) -> Bag:
        return self.submit(count, classes or [KNOWN], rent_from=["cloud"], deadline_s=3600.0, **rules)

    def plan(self, bag: Bag, *, start: list[Offer] | None = None, **rest: Any) -> PlanTaken:
        starts = [Start(f"new-{place}", offer) for place, offer in enumerate(start or [])]
        decided = self.step(PlanProposed(self.t, bag.number, self.state.seq, Plan(start=starts, **rest))).decided
        assert isinstance(decided, PlanTaken)
        for number, _, _ in decided.started:
            self.step(MachineStarted(self.t, number, f"i-{number}", self.t))
        return decided

    def boot(self, number: int, want: int = 2) -> list[Any]:
        """Its worker asks for the first time, or again."""
        machine = self.state.fleet.machines[number]
        return self.tasks(machine.host_name, want, 2, pool="cloud", machine=number)

    def work(self, number: int, seconds: int) -> None:
        """Its worker is heard of all the while."""
        for _ in range(0, seconds, 10):
            self.wait(10)
            self.boot(number, 0)

    def sleep(self, number: int) -> None:
        self.step(MachineHibernated(self.t, number, self.t))

    def end(self, number: int, cause: str = "taken") -> None:
        self.step(MachineEnded(self.t, number, self.t, cause))

    def cost_usd(self, number: int) -> float:
        return fleet.owed_microusd(self.state.fleet.machines[number], self.t) / 1e6

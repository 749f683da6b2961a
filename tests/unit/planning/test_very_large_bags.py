"""Bags of so many tasks that they come without names: many machines are renewed in few rounds."""

from __future__ import annotations

from windfall.planning.bags.planning_pass import PlanningPass
from windfall.planning.contract import SPOT, Group, Machine, Phase, Snapshot, Task
from windfall.planning.offers import Offer

SMALL = Offer(name="s", price_usd=0.01, cores=2, cycle_s=60.0, lag_s=30.0, market=SPOT, limit=40)


def test_machines_that_differ_in_when_they_are_free_are_renewed_together(monkeypatch):
    machines = tuple(
        Machine(id=str(n), offer=SMALL, phase=Phase.IDLE, ready_t=0.0, paid_until_t=1000.0 + n, up_since_t=0.0)
        for n in range(40)
    )
    groups = (Group(Task(-1, 30.0), 3000),)
    shown = Snapshot(t=1000.0, deadline_t=9000.0, tasks={}, machines=machines, offers=(SMALL,), groups=groups)
    rounds, real = [], PlanningPass._choices

    def counted(self, left, useless):
        rounds.append(sum(left))
        return real(self, left, useless)

    monkeypatch.setattr(PlanningPass, "_choices", counted)
    decided = PlanningPass(shown, 5.0, ())
    decided.decide()
    assert decided.shortfall() == (0, 0) and sum(e.count for bin in decided.bins for e in bin.placed) == 3000
    assert len(rounds) < 20, "and not one round for each machine and each renewal"

"""How often a task is told to save, by the host that it is handed to."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.engine.hand import Hand
from windfall.core import events as ev
from windfall.core.events import TaskClass
from windfall.core.state.renting.fleet import Seen
from windfall.planning.contract import Plan, Start
from windfall.planning.offers import Offer

AUTO = [TaskClass(estimate_s=7200.0, checkpoint_mb=25.0, checkpoint_auto=True)]
CALM, WILD = (
    Offer(name=name, price_usd=0.1, cores=1, market="spot", pool="cloud", interruptions_per_h=rate)
    for name, rate in (("calm", 0.1), ("wild", 6.0))
)
SURE = Offer(name="sure", price_usd=0.3, pool="cloud")


def told(hand: Hand, host: str, **ad) -> list[float | None]:
    return [piece.checkpoint_s for piece in hand.ask(host, **ad).assigned]


def test_a_machine_that_is_interrupted_often_saves_often():
    hand = Hand()
    hand.step(ev.OffersConfigured(hand.t, "cloud", [CALM, WILD, SURE]))
    bag = hand.submit(3, AUTO, name="rented", deadline_s=36000.0, rent_from=["cloud"])
    starts = [Start("a", CALM), Start("b", WILD), Start("c", SURE)]
    plan = Plan(start=starts, assign={"a": [0], "b": [1], "c": [2]})
    hand.step(ev.PlanProposed(hand.t, bag.number, hand.state.seq, plan))
    intervals = []
    for machine in (1, 2, 3):
        hand.step(ev.MachineStarted(hand.t, machine, f"i-{machine}", hand.t))
        intervals += told(hand, f"cloud-m{machine}", machine=machine, pool="cloud")
    calm, wild, sure = intervals
    assert wild < 300 < calm < 1500 <= sure, intervals


def test_hours_of_on_demand_machines_do_not_make_spot_save_less_often():
    def interval(on_demand_s: float) -> float | None:
        hand = Hand()
        spot = replace(CALM, interruptions_per_h=None)
        hand.step(ev.OffersConfigured(hand.t, "cloud", [spot, SURE]))
        hand.state.fleet.markets[spot.key] = Seen(reclaimed=3, spells=3, up_s=3600.0)
        hand.state.fleet.markets[SURE.key] = Seen(up_s=on_demand_s)
        bag = hand.submit(1, AUTO, name="rented", deadline_s=36000.0, rent_from=["cloud"])
        plan = Plan(start=[Start("a", spot)], assign={"a": [0]})
        hand.step(ev.PlanProposed(hand.t, bag.number, hand.state.seq, plan))
        hand.step(ev.MachineStarted(hand.t, 1, "i-1", hand.t))
        return told(hand, "cloud-m1", machine=1, pool="cloud")[0]

    assert interval(1e7) == interval(0.0) is not None


def test_a_job_that_says_how_often_is_not_told_otherwise():
    hand = Hand()
    hand.submit(1, [TaskClass(estimate_s=7200.0, checkpoint_mb=25.0)], name="fixed")
    hand.submit(1, AUTO, name="auto")
    assert told(hand, "h1") == [None]
    assert told(hand, "h2")[0] > 600.0


def test_a_repeated_exchange_tells_the_same_interval():
    hand = Hand()
    hand.submit(1, AUTO, name="auto")
    first = hand.ask("h1").assigned
    again = hand.step(ev.HostAsked(hand.t + 1.0, "h1", "b", 1, 1, 1)).decided
    session = hand.state.host("h1").session
    assert again.repeat and [piece.checkpoint_s for piece in session.assigned] == [first[0].checkpoint_s]

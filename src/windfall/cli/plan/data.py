"""What machines of a planned job fetch: how much, and the time and price of it. Touches the stores of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from windfall.bags.submission import Submission, is_measured
from windfall.units import show_duration, show_usd

if TYPE_CHECKING:
    from windfall.bags.spec import JobSpec
    from windfall.planning.offers import Offer
    from windfall.sim.clouds.market import Supply


def measured_job(bag: Submission) -> tuple[JobSpec, list[str]]:
    """The job with the size of what its machines fetch; a job that names pools was measured when it was read."""
    if bag.spec.pools or not is_measured(bag.spec, bag.remote):
        return bag.spec, bag.unmeasured
    from windfall.bags.remote_sizes import measured

    return measured(bag.spec, bag.remote, bag.count)


def with_fetching(supplies: tuple[Supply, ...], data_gb: dict[str, float], assumed: list[str]) -> tuple[Supply, ...]:
    """What may be rented, each with the time and price of the data that a machine of it fetches; told in `assumed`."""
    if not data_gb:
        return supplies
    from windfall.planning.data import moved, with_data
    from windfall.sim.inputs.laws import fixed

    found, told = [], []
    for supply in supplies:
        seconds, usd = moved(supply.offer, data_gb)
        offer = with_data(supply.offer, data_gb)
        law = supply.boot
        boot = fixed(law.parameters["value"] + seconds) if law.kind == "fixed" else law
        found.append(replace(supply, offer=offer, boot=boot))
        told.append(f"{show_usd(usd)}{_time_words(offer, seconds)} on {offer.name}")
    places = ", ".join(f"{gb:.3g} GB of {region or 'an unknown region'}" for region, gb in sorted(data_gb.items()))
    assumed.append(f"each machine fetches {places}: {'; '.join(told)}")
    return tuple(found)


def _time_words(offer: Offer, seconds: float) -> str:
    """Nothing where the offer says no speed: a time of 0 s would be a promise."""
    return "" if offer.data_mb_per_s is None else f" and {show_duration(seconds)}"


def with_task_fetching(
    supplies: tuple[Supply, ...], data_gb: dict[str, float], run_s: float, width: int, assumed: list[str]
) -> tuple[Supply, ...]:
    """What may be rented, each with the time and price of what a task fetches and writes; told in `assumed`."""
    if not data_gb:
        return supplies
    from windfall.planning.data import moved, with_task_data

    told = []
    for supply in supplies:
        seconds, usd = moved(supply.offer, data_gb)
        told.append(f"{show_usd(usd)}{_time_words(supply.offer, seconds)} on {supply.offer.name}")
    places = ", ".join(f"{gb:.3g} GB of {region or 'an unknown region'}" for region, gb in sorted(data_gb.items()))
    assumed.append(f"a task fetches and writes {places} on average: {'; '.join(told)}")
    return tuple(
        replace(supply, offer=with_task_data(supply.offer, data_gb, run_s, width)) for supply in supplies
    )  # fmt: skip

"""What EC2 bills, computed from what the proxy saw and by EC2's rules, by other code than the engine's."""

from __future__ import annotations

import math

from tests.support.ec2.proxy import Ec2Proxy

FREE_S = 3600


def bill_usd(proxy: Ec2Proxy, id: str, minimum_s: float = 60.0) -> float:
    """Dollars that one instance costs.

    By the second, `minimum_s` at least, at the price in effect in each second; free if EC2 takes it in its first hour.
    """
    spell = proxy.instances[id]
    held_s = sum(to - since for since, to in spell.stretches)
    assert held_s < math.inf, f"{id} still runs"
    seconds = math.ceil(max(minimum_s, held_s))
    if spell.taken and held_s < FREE_S:
        return 0.0
    times = [since + offset for since, to in spell.stretches for offset in range(math.ceil(to - since))]
    # The minimum is billed at the last price.
    times += [spell.stretches[-1][1]] * (seconds - len(times))
    return math.fsum(_usd_per_h(proxy, id, t) for t in times[:seconds]) / 3600.0


def _usd_per_h(proxy: Ec2Proxy, id: str, t: float) -> float:
    spell = proxy.instances[id]
    if spell.market == "on-demand":
        return proxy.on_demand[spell.type]
    return [usd for since_t, usd in proxy.prices[spell.type, spell.zone] if since_t <= t][-1]

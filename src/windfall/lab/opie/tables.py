"""Tables 3 to 6 of the OPIE paper as data: hosts, the request, and whom the paper evicts. Pure.

Sizes count vCPUs and memory. The paper's disks are left out because its own states do not fit them: four medium
instances take 160 GB of a 140 GB disk, and table 6 frees 20 GB for a request of 40.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from windfall.placement import Host, Instance, Request

SIZES: Mapping[str, Mapping[str, float]] = {  # table 2
    "S": {"vcpu": 1, "ram_mb": 2000},
    "M": {"vcpu": 2, "ram_mb": 4000},
    "L": {"vcpu": 4, "ram_mb": 8000},
}
CAPACITY: Mapping[str, float] = {"vcpu": 8, "ram_mb": 16000}  # table 1


class Table(Struct, frozen=True):
    """One table: the state, the request, the host and victims in the paper, and their cost."""

    hosts: tuple[Host, ...]
    request: Request
    host: str
    victims: tuple[str, ...]
    cost_min: int


def _host(name: str, *instances: tuple[str, int, str]) -> Host:
    """Instances as (id, minutes, size); an id with a P is preemptible, as in the paper."""
    return Host(
        name,
        CAPACITY,
        tuple(Instance(identity, "P" in identity, minutes * 60, SIZES[size]) for identity, minutes, size in instances),
    )


def _medium(name: str, **minutes: int) -> Host:
    return _host(name, *((identity, run, "M") for identity, run in minutes.items()))


TABLES: Mapping[int, Table] = {
    3: Table(
        (
            _medium("host-A", A1=272, A2=172, AP1=96, AP2=207),
            _medium("host-B", B1=136, B2=200, BP1=71, BP2=91),
            _medium("host-C", C1=97, C2=275, CP1=210, CP2=215),
            _medium("host-D", D1=16, DP1=85, DP2=199, DP3=152),
        ),
        Request(False, SIZES["M"]),
        "host-B",
        ("BP1",),
        11,
    ),
    4: Table(
        (
            _medium("host-A", AP1=247, AP2=463, AP3=403, AP4=410),
            _medium("host-B", B1=388, B2=103, BP1=344, BP2=476),
            _medium("host-C", C1=481, C2=177, CP1=181, CP2=160),
            _medium("host-D", D1=173, DP1=384, DP2=168, DP3=232),
        ),
        Request(False, SIZES["M"]),
        "host-C",
        ("CP1",),
        1,
    ),
    5: Table(
        (
            _host("host-A", ("AP1", 298, "L"), ("AP2", 278, "M"), ("AP3", 190, "S"), ("AP4", 187, "S")),
            _host("host-B", ("B1", 494, "L"), ("BP1", 178, "L")),
            _host("host-C", ("CP1", 297, "L"), ("CP2", 296, "M"), ("CP3", 296, "S")),
            _host("host-D", ("D1", 176, "M"), ("D2", 200, "M"), ("D3", 116, "L")),
        ),
        Request(False, SIZES["L"]),
        "host-A",
        ("AP2", "AP3", "AP4"),
        55,
    ),
    6: Table(
        (
            _host("host-A", ("A1", 234, "L"), ("A2", 122, "M"), ("AP1", 172, "M")),
            _host("host-B", ("BP1", 272, "L"), ("BP2", 212, "M"), ("BP3", 380, "S")),
            _host("host-C", ("C1", 182, "S"), ("C2", 120, "M"), ("C3", 116, "L")),
            _host("host-D", ("DP1", 232, "L"), ("DP2", 213, "S"), ("DP3", 324, "M"), ("DP4", 314, "S")),
        ),
        Request(False, SIZES["M"]),
        "host-B",
        ("BP3",),
        20,
    ),
}

"""Chance by name and place: a number in (0, 1) for every (seed, purpose, a, b), whoever asks and whenever. Pure.

Nothing is drawn from a shared stream, so a policy that asks in another order meets the same failures on the same hosts
and the same run times of the same tasks (common random numbers). The numbers are those of SplitMix64 (Steele, Lea and
Flood, 2014) at a position of our own choice: integer arithmetic only, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN, _OTHER = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SCALE = 1.0 / (1 << 53)

Stream = Callable[..., float]
"""`stream(a, b)`: the number at place (a, b), never 0 and never 1."""


def stream(seed: int, purpose: str) -> Stream:
    """The numbers of one purpose under one seed."""
    key = int.from_bytes(blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest(), "little")

    def at(a: int, b: int = 0) -> float:
        x = (key + a * _GOLDEN + b * _OTHER) & _MASK
        x = ((x ^ (x >> 30)) * _M1) & _MASK
        x = ((x ^ (x >> 27)) * _M2) & _MASK
        x ^= x >> 31
        # A second round: neighbours in a and b must not resemble each other.
        x = ((x ^ (x >> 30)) * _M1 + _GOLDEN) & _MASK
        x = ((x ^ (x >> 27)) * _M2) & _MASK
        return ((x >> 11) + 0.5) * _SCALE

    return at

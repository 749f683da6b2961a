"""Random numbers by purpose and place: one number in (0, 1) for each (seed, purpose, a, b), in any order. Pure.

There is no shared stream, so a policy that asks in another order meets the same failures on the same hosts and the same
run times of the same tasks (common random numbers). The numbers are those of SplitMix64 (Steele, Lea and Flood, 2014)
at the position (a, b): integer arithmetic only, so they are the same on every machine.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import blake2b

import numpy as np

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN, _OTHER = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SCALE = 1.0 / (1 << 53)

Stream = Callable[..., float]
"""`stream(a, b)`: the number at place (a, b), never 0 and never 1."""


BLOCK, BLOCKS_KEPT = 1024, 64


def _key(seed: int, purpose: str) -> int:
    return int.from_bytes(blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest(), "little")


def stream(seed: int, purpose: str) -> Stream:
    """The numbers of one purpose under one seed."""
    key = _key(seed, purpose)

    def at(a: int, b: int = 0) -> float:
        x = (key + a * _GOLDEN + b * _OTHER) & _MASK
        x = ((x ^ (x >> 30)) * _M1) & _MASK
        x = ((x ^ (x >> 27)) * _M2) & _MASK
        x ^= x >> 31
        # A second round, so that numbers at neighbouring positions are independent.
        x = ((x ^ (x >> 30)) * _M1 + _GOLDEN) & _MASK
        x = ((x ^ (x >> 27)) * _M2) & _MASK
        return ((x >> 11) + 0.5) * _SCALE

    return at


def stream_in_turn(seed: int, purpose: str, usual: tuple[int, ...] = (0,)) -> Stream:
    """The same numbers, faster for callers that ask for many `a` of each usual `b` in roughly ascending order.

    These are computed in blocks: one costs as much as thirty single numbers. A number of a block that has been dropped
    is computed singly.
    """
    key, alone = _key(seed, purpose), stream(seed, purpose)
    blocks_of: dict[int, dict[int, array[float]]] = {b: {} for b in usual}

    def at(a: int, b: int = 0) -> float:
        blocks = blocks_of.get(b)
        if blocks is None:
            return alone(a, b)
        number = a // BLOCK
        block = blocks.get(number)
        if block is None:
            if blocks and number < next(reversed(blocks)):
                return alone(a, b)
            block = blocks[number] = _block(key, number * BLOCK, b)
            if len(blocks) > BLOCKS_KEPT:
                del blocks[next(iter(blocks))]
        return block[a % BLOCK]

    return at


def _block(key: int, first: int, b: int) -> array[float]:
    """The numbers at (first, b), (first + 1, b), ...: as in `stream`, in arithmetic that wraps at 64 bits.

    An array: neighbours are asked for minutes apart, and a list would hold each number as an object of its own.
    """
    x = np.arange(first, first + BLOCK, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64((key + b * _OTHER) & _MASK)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_M1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_M2)
    x ^= x >> np.uint64(31)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_M1) + np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_M2)
    return array("d", (((x >> np.uint64(11)).astype(np.float64) + 0.5) * _SCALE).tobytes())

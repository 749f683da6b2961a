"""Policies as ClassAds: compile, check, evaluate, explain. Touches classad2 and nothing else of the world.

`compile_policies` makes what the core asks (`windfall.core.matching.policy.BagPolicy`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windfall.policy.check import Finding, check_policies
    from windfall.policy.compiled import ClassAdPolicy, compile_policies, named_policies

__all__ = ["ClassAdPolicy", "Finding", "check_policies", "compile_policies", "named_policies"]


_CHECKS = ("Finding", "check_policies")


def __getattr__(name: str) -> Any:
    # Names of policies are asked for by every command; the ClassAd library is needed where one is compiled.
    if name in __all__:
        return getattr(import_module(f"windfall.policy.{'check' if name in _CHECKS else 'compiled'}"), name)
    raise AttributeError(f"module 'windfall.policy' has no attribute {name!r}")

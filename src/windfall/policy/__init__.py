"""Policies as ClassAds: compile, check, evaluate, explain. Touches classad2 and nothing else of the world.

`compile_policies` makes what the core asks (`windfall.core.matching.policy.BagPolicy`).
"""

from windfall.policy.check import Finding, check_policies
from windfall.policy.compiled import ClassAdPolicy, compile_policies, named_policies

__all__ = ["ClassAdPolicy", "Finding", "check_policies", "compile_policies", "named_policies"]

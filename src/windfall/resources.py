"""Resources by name, as people write them (GPUs, licences, FPGAs), and as the engine counts them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from windfall.bounds import MAX_RESOURCES, MAX_UNITS
from windfall.errors import BadInput

GPUS = "gpus"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")
_OPTIONS = {
    "cpu": "--cpus", "cpus": "--cpus", "cores": "--cpus", "memory": "--memory", "mem": "--memory", "gpu": "--gpus",
}  # fmt: skip
"""Names that would be counted beside what has an option of its own."""


def read_pairs(texts: Iterable[str], option: str = "--resource") -> dict[str, float]:
    """Amounts by name from texts such as `fpga=0.5`."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        try:
            value = float(amount) if equals else None
        except ValueError:
            value = None
        if value is None:
            raise BadInput(f"{option} {text}: a name and an amount are needed", hint=f"as in: {option} fpga=0.5")
        if name in found:
            raise BadInput(f"{option} {text}: '{name}' is there twice", hint="say it once, with the whole amount")
        found[name] = value
    return found


def check(resources: Mapping[str, float], where: str, least: float = 0.001) -> None:
    """Refuse names that nobody can type again and amounts that cannot be counted; `where` is told in the error."""
    if len(resources) > MAX_RESOURCES:
        raise BadInput(f"{where}: {len(resources)} resources", hint=f"at most {MAX_RESOURCES}")
    for name, amount in resources.items():
        if not _NAME.match(name):
            raise BadInput(
                f"{where}: '{name[:40]}' is no name of a resource",
                hint="letters, digits, '_', '-' and '.', a letter first, at most 64",
            )
        if name in _OPTIONS:
            raise BadInput(f"{where}: '{name}' is no resource of its own", hint=f"use {_OPTIONS[name]}")
        if not least <= amount <= MAX_UNITS or abs(amount * 1000 - round(amount * 1000)) > 1e-6:
            raise BadInput(
                f"{where}: {name} must be {least:g} to {MAX_UNITS:,} in steps of 0.001, not {amount:g}",
                hint=f"as in {name}=1, or {name}=0.5 for half a unit",
            )


def check_whole(resources: Mapping[str, float], where: str) -> None:
    """As `check`, for what a host has: whole units, and 0 for none of what would be found."""
    check(resources, where, least=0)
    for name, amount in resources.items():
        if amount != int(amount):
            raise BadInput(f"{where}: {name} = {amount:g}: a host has whole units", hint=f"as in {name}=1")


def thousandths(amount: float) -> int:
    return round(amount * 1000)


def needs_of(resources: Mapping[str, float]) -> tuple[tuple[str, int], ...]:
    """What a task needs, in thousandths, by name."""
    return tuple(sorted((name, thousandths(amount)) for name, amount in resources.items() if amount > 0))


def largest(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The most of each that one of them needs."""
    found: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            found[name] = max(amount, found.get(name, 0.0))
    return found


def show(thousandths: int, name: str) -> str:
    """An amount for people: `2 GPUs`, `0.5 fpga`, `1 licence`."""
    amount = f"{thousandths / 1000:g}"
    return f"{amount} {'GPU' if thousandths == 1000 else 'GPUs'}" if name == GPUS else f"{amount} {name}"

"""Figures for counters of Prometheus, which may never fall, made of sums over jobs, which are forgotten. Pure."""

from __future__ import annotations

from collections import Counter


class Rising:
    """What was counted before it was forgotten stays counted, for as long as the server runs."""

    def __init__(self) -> None:
        self._last: Counter[tuple[str, str]] = Counter()
        self._forgotten: Counter[tuple[str, str]] = Counter()

    def of(self, name: str, total: int, label: str = "") -> int:
        key = (name, label)
        self._forgotten[key] += max(0, self._last[key] - total)
        self._last[key] = total
        return total + self._forgotten[key]

    def labels(self, name: str) -> list[str]:
        """Labels that were ever counted under a name."""
        return [label for known, label in self._last if known == name]

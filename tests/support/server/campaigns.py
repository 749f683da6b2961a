"""Campaigns in pieces: each seed adds a row to a file; `python -m tests.support.server.campaigns FILE` adds them up.

A row holds counts (what was tried, what came of it) and times (seconds without service, by fault). A seed that is in
the file already is not counted again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode, encode

REPORT = Path("build/campaigns.jsonl")


class Row(Struct, omit_defaults=True):
    """What one campaign saw with the seeds of a range."""

    campaign: str
    first: int
    last: int
    counts: dict[str, int]
    times: dict[str, list[float]] = {}


def add(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(encode(row) + b"\n")


def read(path: Path) -> list[Row]:
    return [decode(line, type=Row) for line in path.read_bytes().splitlines()] if path.exists() else []


def add_up(rows: Iterable[Row]) -> dict[str, dict[str, object]]:
    """By campaign: seeds, counts, and the median and longest of times. Rows with a seed seen before are left out."""
    seen: dict[str, set[int]] = {}
    counts: dict[str, Counter[str]] = {}
    times: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        seeds = set(range(row.first, row.last + 1))
        if seeds & seen.setdefault(row.campaign, set()):
            continue
        seen[row.campaign] |= seeds
        counts.setdefault(row.campaign, Counter()).update(row.counts)
        for name, found in row.times.items():
            times.setdefault(row.campaign, {}).setdefault(name, []).extend(found)
    return {
        campaign: {
            "seeds": len(seeds),
            **dict(sorted(counts[campaign].items())),
            **{f"{name} s": spread(found) for name, found in sorted(times.get(campaign, {}).items())},
        }
        for campaign, seeds in seen.items()
    }


def spread(times: list[float]) -> dict[str, float]:
    found = sorted(times)
    return {"median": round(found[len(found) // 2], 2), "longest": round(found[-1], 2)} if found else {}


def run_seeds(description: str, number: int, run: Callable[[Path, int, int], Row]) -> int:
    """The command line of a campaign: a folder of its own for each seed, some at once. Returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("number", type=int, nargs="?", default=number, help="faults of a seed")
    parser.add_argument("--from-seed", type=int, default=1, metavar="N")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="seeds side by side: they mostly wait")
    parser.add_argument("--within", type=float, default=86400.0, metavar="SECONDS", help="after that, begin no seed")
    parser.add_argument("--report", type=Path, default=REPORT, metavar="FILE", help="where rows are added")
    said = parser.parse_args()
    failed: list[int] = []
    latest_s = time.monotonic() + said.within

    def one(seed: int) -> Row | None:
        if time.monotonic() > latest_s:
            return None
        with tempfile.TemporaryDirectory(prefix="wf-", ignore_cleanup_errors=True) as folder:
            try:
                row = run(Path(folder), said.number, seed)
            except BaseException:
                traceback.print_exc()
                print(f"seed {seed} failed", file=sys.stderr, flush=True)
                failed.append(seed)
                return None
        add(said.report, row)
        print(encode(row).decode(), file=sys.stderr, flush=True)
        return row

    with ThreadPoolExecutor(said.at_once) as threads:
        rows = list(threads.map(one, range(said.from_seed, said.from_seed + said.seeds)))
    print(json.dumps(add_up(row for row in rows if row)))
    return 1 if failed else 0


if __name__ == "__main__":
    print(json.dumps(add_up(read(Path(sys.argv[1]) if sys.argv[1:] else REPORT)), indent=2))

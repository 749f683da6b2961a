"""Compare the speed of two checkouts: python tools/bench_compare.py BEFORE AFTER [--rounds 5] [--only exchange,queue]

Both need a .venv with Windfall installed. Their benchmarks run by turns, and the first of a pair changes from round to
round, so a machine that others use slows both alike. A line is the median of the rounds; "after / before" is above 1
where the second checkout is faster. Five rounds take about seven minutes on two free cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

# Of each benchmark: its options, and the figures that are compared. "-" before a figure: less is better.
BENCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "noop": ("--n 3000 --rounds 1", ("ours",)),
    "spawn": ("--n 1500 --rounds 1", ("ours",)),
    "exchange": ("--hosts 2000 --seconds 3", ("exchanges_per_s", "-p50_ms")),
    "queue": ("--n 100000 --seconds 1", ("dispatch_per_s_short", "dispatch_per_s_long", "-submit_lines_s")),
    "match": ("--bags 100 --hosts 1000 --seconds 0.3", ("mixed_per_s", "distinct_per_s", "unwanted_per_s")),
    "simulate": ("--scale 0.015 --no-growth", ("-us_per_attempt",)),
}
PATIENCE_S = 300


def run(checkout: Path, bench: str) -> dict[str, float]:
    """The figures of one run."""
    options, wanted = BENCHES[bench]
    command = [str(checkout / ".venv/bin/windfall"), "bench", bench, *options.split(), "--json"]
    ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=PATIENCE_S)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ran.stderr.strip()[-2000:]}")
    document = json.loads(ran.stdout.strip().splitlines()[-1])
    return {figure: float(document[figure.lstrip("-")]) for figure in wanted}


def faster(figure: str, before: float, after: float) -> float:
    return before / after if figure.startswith("-") else after / before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(BENCHES), help="benchmarks, with commas between them")
    parser.add_argument("--least", type=float, default=0.97, help="the exit code is 1 if a ratio is below this")
    asked = parser.parse_args()
    benches = asked.only.split(",")
    if unknown := set(benches) - set(BENCHES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHES)}")
    before, after = asked.before.resolve(), asked.after.resolve()
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(asked.rounds):
        for bench in benches:
            print(f"round {number + 1} of {asked.rounds}: {bench}", end="    \r", file=sys.stderr, flush=True)
            order = (before, after) if number % 2 == 0 else (after, before)
            found = {checkout: run(checkout, bench) for checkout in order}
            for figure in BENCHES[bench][1]:
                seen.setdefault((bench, figure), []).append((found[before][figure], found[after][figure]))
    print("| bench | figure | before | after | after / before | rounds |\n|---|---|---|---|---|---|")
    slow = []
    for (bench, figure), pairs in seen.items():
        ratios = sorted(faster(figure, *pair) for pair in pairs)
        ratio = median(ratios)
        slow += [bench] if ratio < asked.least else []
        was, now = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"| {bench} | {figure.lstrip('-')} | {was:,.4g} | {now:,.4g} | {ratio:.2f} | {spread} |")
    if slow:
        print(f"\nbelow {asked.least}: {', '.join(dict.fromkeys(slow))}")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())

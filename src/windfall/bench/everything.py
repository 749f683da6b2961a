"""`windfall bench all`: every benchmark, one after the other, each in a process of its own. Touches processes."""

from __future__ import annotations

import json
import subprocess
import sys

import click

from windfall.bench.harness import report, show


@click.command("all")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a benchmark (NDJSON).")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Run every benchmark with its defaults; several minutes.

    Example: windfall bench all --json > bench.ndjson
    """
    from windfall.bench.command import BENCHES

    failed = []
    for name in BENCHES:
        if name == "all":
            continue
        show(f"bench {name}")
        ran = subprocess.run(
            [sys.executable, "-m", "windfall", "bench", name, "--json"], capture_output=True, text=True
        )
        show("")
        if ran.returncode:
            failed.append(name)
            click.echo(f"windfall: bench {name} failed: {ran.stderr.strip()[-300:]}", err=True)
        elif as_json:
            click.echo(ran.stdout.strip())
        else:
            click.echo(f"{name}: {BENCHES[name][2]}")
            report(json.loads(ran.stdout), as_json=False)
    ctx.exit(1 if failed else 0)

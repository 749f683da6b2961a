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
        code, said, errors = _ran(name)
        show("")
        if code:
            failed.append(name)
            click.echo(f"windfall: bench {name} failed: {errors.strip()[-300:]}", err=True)
        elif as_json:
            click.echo(said.strip())
        else:
            click.echo(f"{name}: {BENCHES[name][2]}")
            report(json.loads(said), as_json=False)
    ctx.exit(1 if failed else 0)


def _ran(name: str) -> tuple[int, str, str]:
    """Exit code and output of a benchmark. At Ctrl-C it is told to end once, and ends what it has started."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-m", "windfall", "bench", name, "--json"]
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, process_group=0)
    try:
        said, errors = process.communicate()
    except BaseException:
        process.terminate()
        process.communicate()
        raise
    return process.returncode, said, errors

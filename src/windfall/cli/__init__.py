"""The command line. Touches the terminal; every command is a thin layer over the client or a pure package.

Commands load only when called, so that `windfall --help` and a failing command stay quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from difflib import get_close_matches

import click

from windfall import __version__
from windfall.errors import WindfallError

# name -> (module, attribute, one line of help). A new command is one line here and one module.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("windfall.cli.run.command", "run", "Run a bag of tasks here, to its end."),
    "submit": ("windfall.cli.run.command", "submit", "Submit a bag of tasks to a server."),
    "status": ("windfall.cli.jobs.command", "status", "The jobs, or one job, at a glance."),
    "wait": ("windfall.cli.jobs.command", "wait", "Wait until a job has ended."),
    "tasks": ("windfall.cli.jobs.command", "tasks", "The tasks of a job; failures grouped by cause."),
    "logs": ("windfall.cli.jobs.fetch", "logs", "What tasks wrote; -f follows."),
    "results": ("windfall.cli.jobs.fetch", "results", "Results of a job; brings output files back."),
    "retry": ("windfall.cli.jobs.command", "retry", "Try failed tasks again, in place."),
    "cancel": ("windfall.cli.jobs.command", "cancel", "Cancel a job or some of its tasks."),
    "change": ("windfall.cli.jobs.change", "change", "Change a job that runs: priority, limits, policies, pause."),
    "events": ("windfall.cli.jobs.events", "events", "What happened and what was decided."),
    "host": ("windfall.cli.serve.hosts", "host", "Hosts: list, info, block, unblock, drain."),
    "pool": ("windfall.cli.serve.pools", "pool", "Pools: where hosts come from, and how many are asked for."),
    "workflow": ("windfall.cli.jobs.workflow", "workflow", "Workflows: how far, a picture, classes; check a file."),
    "cost": ("windfall.cli.jobs.cost", "cost", "What a job has cost: by machine, offer and pool; what is to come."),
    "report": (
        "windfall.cli.jobs.report",
        "report",
        "A page about a job, with pictures.",
    ),
    "explain": ("windfall.cli.jobs.explain", "explain", "Why a job or a task waits, or the story of a task."),
    "token": ("windfall.cli.serve.tokens", "token", "Tokens: create, list, revoke."),
    "server": ("windfall.cli.serve.server", "server", "Serve workers and clients."),
    "demo": ("windfall.cli.run.demo", "demo", "A real bag in under two minutes."),
    "timeout": ("windfall.cli.timeout.command", "timeout", "When to give a silent job up: laws, fits, curves."),
    "plan": ("windfall.cli.plan.command", "plan", "What to rent and what runs where, before anything starts."),
    "site": (
        "windfall.cli.site.command",
        "site",
        "Your own hosts: workers fill them and make way for you.",
    ),
    "place": ("windfall.cli.site.place", "place", "Place normal and preemptible instances on your own hosts."),
    "policy": ("windfall.cli.policy", "policy", "Check and test ClassAd policies."),
    "simulate": ("windfall.cli.simulate.command", "simulate", "Run a scenario in virtual time, with the real engine."),
    "worker": ("windfall.cli.serve.worker", "worker", "Take tasks from a server and run them on this host."),
    "lab": ("windfall.lab.command", "lab", "The papers' tables and figures, run again."),
    "bench": ("windfall.bench.command", "bench", "Benchmarks against floors and peers measured in the same run."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(self, *args: object, table: dict[str, tuple[str, str, str]] | None = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.table = table or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module, attribute, _ = self.table[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.table, n=1)
            raise click.UsageError(f"no command '{args[0]}'." + (f" Did you mean '{near[0]}'?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # The reader went away (`windfall ... | head`): quiet, as every filter is. Click's own answer is exit code
            # 1, which here means that tasks failed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.table[name][2]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windfall")
def cli() -> None:
    """Finish a bag of tasks or a workflow by a deadline, at the least cost, on machines that may vanish."""


def usage_message(error: click.ClickException) -> str:
    """Click's complaint in our form: what, and in a second line where to look."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message}\n  see: {context.command_path} --help" if context else message


def main() -> None:
    """Run the command line: every expected error is two lines at most, and its exit code says its kind."""
    try:
        code = cli.main(prog_name="windfall", standalone_mode=False)
    except WindfallError as error:
        click.echo(f"windfall: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"windfall: {usage_message(error)}", err=True)
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("windfall: interrupted", err=True)
        code = 130
    sys.exit(code if isinstance(code, int) else 0)

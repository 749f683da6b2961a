"""The command line. Touches the terminal; every command is a thin layer over the client or a pure package.

Commands load only when called, so that `windfall --help` and a failing command stay quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from windfall import __version__
from windfall.cli.exits import (
    Terminated,
    bad_name,
    good_order,
    has_too_many_digits,
    ignore_signals,
    is_about_output,
    is_of_a_reader,
    open_closed_streams,
    output_lost,
    say,
)
from windfall.cli.help import teach
from windfall.cli.show.terminal import guard_terminals
from windfall.cli.usage import unknown_command, usage_message
from windfall.errors import WindfallError
from windfall.loading import loading

Table = dict[str, tuple[str, str, str]]

# Section -> name -> (module, attribute, one line of help). A new command is one line here and one module.
SECTIONS: dict[str, Table] = {
    "Run tasks": {
        "run": ("windfall.cli.run.command", "run", "Run tasks or a workflow here, to the end."),
        "submit": ("windfall.cli.run.command", "submit", "Send tasks or a workflow to a server."),
        "import": (
            "windfall.cli.run.importing",
            "import_group",
            "Make job and workflow files of those of other systems.",
        ),
        "demo": ("windfall.cli.run.demo", "demo", "Run an example in under two minutes."),
    },
    "Follow a job": {
        "status": ("windfall.cli.jobs.command", "status", "Show all jobs, or one of them."),
        "wait": ("windfall.cli.jobs.command", "wait", "Wait until a job has ended."),
        "tasks": ("windfall.cli.jobs.command", "tasks", "List the tasks of a job; group failures by cause."),
        "logs": ("windfall.cli.jobs.fetch", "logs", "Show the output of tasks; -f follows it."),
        "results": ("windfall.cli.jobs.fetch", "results", "Show the results of a job; bring output files back."),
        "joblog": ("windfall.cli.jobs.joblog", "joblog", "Print a job's tasks in GNU parallel's --joblog format."),
        "workflow": ("windfall.cli.jobs.workflow", "workflow", "Show, draw, check or export a workflow; list classes."),
        "explain": ("windfall.cli.jobs.explain", "explain", "Say why a job or a task waits, or what happened to it."),
        "events": ("windfall.cli.jobs.events", "events", "List what happened and what was decided."),
        "report": ("windfall.cli.jobs.report", "report", "Write a page about a job, with figures."),
    },
    "Change a job": {
        "change": ("windfall.cli.jobs.change", "change", "Change deadline, budget, limits or policies; pause."),
        "retry": ("windfall.cli.jobs.command", "retry", "Run failed tasks again."),
        "cancel": ("windfall.cli.jobs.command", "cancel", "Cancel a job or some of its tasks."),
        "archive": ("windfall.cli.jobs.archive", "archive", "Write an ended job to one file."),
        "forget": ("windfall.cli.jobs.forget", "forget", "Remove ended jobs with all their results."),
    },
    "Deadlines and money": {
        "plan": ("windfall.cli.plan.command", "plan", "Say cost and finish before anything is rented."),
        "market": ("windfall.cli.market.command", "market", "Show what was learned of offers; import series."),
        "fleet": ("windfall.cli.serve.fleets", "fleet", "Create and show machines that several jobs share."),
        "cost": ("windfall.cli.jobs.cost", "cost", "Show the bill of a job or a fleet."),
    },
    "Server and hosts": {
        "server": ("windfall.cli.serve.server", "server", "Run a server for workers and clients."),
        "console": ("windfall.cli.serve.console", "console", "Show the web pages of a server."),
        "worker": ("windfall.cli.serve.worker", "worker", "Run tasks of a server on this host."),
        "host": ("windfall.cli.serve.hosts", "host", "List hosts; block, unblock or drain one."),
        "pool": ("windfall.cli.serve.pools", "pool", "List pools, their offers and their machines."),
        "state": ("windfall.cli.serve.state", "state", "Copy, back up, check and repair a state."),
        "boinc": ("windfall.cli.serve.boinc", "boinc", "Let volunteers' BOINC clients run tasks."),
        "token": ("windfall.cli.serve.tokens", "token", "Create, list and revoke access tokens."),
        "site": ("windfall.cli.site.command", "site", "Lend idle hosts of your own to workers."),
        "place": ("windfall.cli.site.place", "place", "Choose hosts for normal and preemptible instances."),
    },
    "Models": {
        "policy": ("windfall.cli.policy", "policy", "Check and test ClassAd policies."),
        "timeout": ("windfall.cli.timeout.command", "timeout", "Find the best time to give up a silent job."),
        "simulate": ("windfall.cli.simulate.command", "simulate", "Run a scenario in virtual time."),
    },
    "About Windfall": {
        "lab": ("windfall.lab.command", "lab", "Reproduce the papers' tables and figures."),
        "bench": ("windfall.bench.command", "bench", "Measure speed against floors and peers."),
        "help": ("windfall.cli.topics", "help_command", "Explain deadlines, policies, pools, exit codes, completion."),
        "completion": ("windfall.cli.completion", "completion", "Let the shell complete commands and options."),
        "version": ("windfall.cli.version", "version", "Print the version."),
    },
}
COMMANDS: Table = {name: entry for table in SECTIONS.values() for name, entry in table.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def __init__(self, *args: Any, sections: dict[str, Table] | None = None, table: Table | None = None, **kwargs: Any):
        """Commands in `sections`, or in one `table`."""
        super().__init__(*args, **kwargs)
        self.sections = sections or {"Commands": table or {}}
        self._taught: list[click.Command] = []
        self.table = {name: entry for part in self.sections.values() for name, entry in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module, attribute, _ = self.table[name]
        with loading():
            command: click.Command = getattr(importlib.import_module(module), attribute)
        if command not in self._taught:
            self._taught.append(command)
            teach(command, (*ctx.command_path.split()[1:], name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            raise click.UsageError(unknown_command(args[0], self.table), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.table))
        for section, table in self.sections.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), line) for name, (_, _, line) in table.items()])


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  windfall run --range 1-10 -- echo {}\n  windfall help deadlines",
)
@click.version_option(__version__, prog_name="windfall")
def cli() -> None:
    """Finish a bag of tasks or a workflow by a deadline, at the least cost, on machines that may vanish."""


def main() -> None:
    """Run the command line: every expected error is two lines at most, and its exit code says its kind."""
    open_closed_streams()
    guard_terminals()
    try:
        code = _code()
    except (KeyboardInterrupt, Terminated) as stop:
        # One more signal, while the command was saying how it ended.
        code = stop.exit_code if isinstance(stop, Terminated) else 130
    ignore_signals()
    sys.exit(code)


def _code() -> int:
    with good_order():
        try:
            code = _run()
            sys.stdout.flush()
        except OSError as error:
            if is_about_output(error):
                code = output_lost(error)
            elif wrong := bad_name(error):
                say(f"windfall: {wrong}")
                code = 2
            else:
                raise
        except RecursionError as error:
            if not is_of_a_reader(error):
                raise
            say("windfall: a text that was given is nested too deep to be read")
            code = 2
        except ValueError as error:
            if not has_too_many_digits(error):
                raise
            say("windfall: a number that was given has thousands of digits, and cannot be read")
            code = 2
        except (click.Abort, KeyboardInterrupt):
            say("windfall: interrupted")
            code = 130
        except Terminated as stop:
            say("windfall: terminated")
            code = stop.exit_code
        ignore_signals()
    return code


def _run() -> int:
    """What `click.Group.main` does, without its answers to Ctrl-C and to a closed pipe: those are ours."""
    code: object
    try:
        if instruction := os.environ.get("_WINDFALL_COMPLETE"):
            from click.shell_completion import shell_complete

            return shell_complete(cli, {}, "windfall", "_WINDFALL_COMPLETE", instruction)
        with cli.make_context("windfall", sys.argv[1:]) as context:
            code = cli.invoke(context)
    except WindfallError as error:
        say(f"windfall: {error}")
        code = error.exit_code
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        # `windfall`, or `windfall pool`: a question, and no mistake.
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        say(f"windfall: {usage_message(error)}")
        code = 2
    except SystemExit as stop:  # of argparse, which reads the options of the worker
        code = stop.code
    return code if isinstance(code, int) else 0

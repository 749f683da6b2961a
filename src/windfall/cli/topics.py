"""`windfall help TOPIC`: what no single option explains, each on one screen. Touches the terminal."""

from __future__ import annotations

import click

from windfall.errors import BadInput

TOPICS: dict[str, tuple[str, str]] = {
    "deadlines": ("How deadlines and budgets are kept.", """\
A deadline is a duration from now (--deadline 2h30m) or a clock time of this host
(--deadline 18:00, 'tomorrow 6:00', '2026-12-01 18:00'). A text with a colon is never a duration.

With rented machines (--pools FILE --pool NAME) the planner rents the cheapest machines that finish
in time with the chance that --confidence asks for (default 0.95). It keeps a safety net: as long as
on-demand machines could still finish the rest in time, spot machines are used.
--budget USD is a limit: no billing cycle that would exceed it is begun.

A missed deadline stops nothing; the exit code is 4.

  windfall plan job.toml --offers offers.toml --deadline 2h     what it costs, before anything starts
  windfall run -f job.toml --deadline 2h --pools pools.toml --pool cloud
  windfall change last --deadline 20:00                         while it runs
  windfall explain last                                         why these machines, at which price
"""),
    "policies": ("Which host runs what: ClassAd expressions.", """\
A policy is a ClassAd expression over Host, BOT (the bag), Job and Now. Options of run, submit and change:

  --require    which hosts may run a task         'Host.Memory >= 8192 && Host.site == "haifa"'
  --rank       in which order bags are served     'BOT.Priority'
  --concurrency, --attempt-deadline, --replicate, --grid, --policy NAME=EXPR

  windfall policy check 'Host.Memory >= 8192'     is it right? Names, types, a guess for typing errors
  windfall explain last                           which clause keeps how many hosts away, and what to change
  windfall change last --require ''               without it
"""),
    "pools": ("Where hosts come from.", """\
A pool is a source of hosts: workers that are started when tasks wait, or machines that plans rent.

  local      processes on this host            slurm, pbs, lsf   jobs of a batch system
  ssh        hosts that you can log in to      ec2               spot and on-demand machines
  command    any system, by three commands     emulated          a small cloud on this host
  site       hosts of your own, shared         self              workers that people start

  windfall pool add here limit=4                       one pool, kept by the state until it is removed
  windfall server --pools pools.toml                   or a file with a [[pool]] for each
  windfall pool doctor here                            what is wrong with it, and what to do
  windfall pool list                                   limits, running and wanted workers, offers
  windfall pool info here                              its hosts, and what those said that never came
  windfall pool pause here                             start nothing new; pool resume: again
  windfall pool drain here                             finish, then end; pool remove: take it away
  windfall run tasks.txt --pools pools.toml --pool cloud
  windfall worker --server URL --token-file FILE       any host may join without a pool, too

A machine that vanishes costs time, not results: its tasks run again elsewhere.
"""),
    "exit-codes": ("What the exit code of a command says.", """\
    0   done
    1   tasks failed or were cancelled
    2   bad input, or a state that cannot be used; nothing was started
    3   no server, or it does not let you in
    4   a deadline was missed, a budget is used up, a wait took too long
   74   standard output could not be written (a full disk)
  129   stopped by SIGHUP       130   by Ctrl-C       143   by SIGTERM

Whatever stopped a run, nothing that was acknowledged is lost: the same command again goes on.

  windfall run tasks.txt || windfall tasks last --group-by cause
"""),
    "completion": ("Completion of commands and options in your shell.", """\
Once, for bash, zsh or fish, whichever $SHELL names:

  windfall completion --install

Then open a new terminal and type: windfall st<Tab>

It adds a line to ~/.bashrc or ~/.zshrc, or makes ~/.config/fish/completions/windfall.fish.
To name the shell, or to see the script:

  windfall completion zsh --install
  windfall completion zsh
"""),
}  # fmt: skip


@click.command("help")
@click.argument("topic", required=False, nargs=-1)
@click.pass_context
def help_command(context: click.Context, topic: tuple[str, ...]) -> None:
    """Explain a topic or a command: deadlines, policies, pools, exit-codes, completion, or `run`, `host list`."""
    if not topic:
        for name, (line, _) in TOPICS.items():
            click.echo(f"  windfall help {name:<12} {line}")
        click.echo("  windfall help COMMAND      The same as windfall COMMAND --help.")
        return
    if len(topic) == 1 and topic[0] in TOPICS:
        line, text = TOPICS[topic[0]]
        click.echo(f"{line}\n\n{text}", nl=False)
        return
    _print_command(context, topic)


def _print_command(context: click.Context, words: tuple[str, ...]) -> None:
    here = context.find_root()
    for word in words:
        group = here.command
        command = group.get_command(here, word) if isinstance(group, click.Group) else None
        if command is None:
            hint = f"topics are: {', '.join(TOPICS)}; commands: windfall --help"
            raise BadInput(f"there is no topic and no command '{' '.join(words)}'", hint=hint)
        here = click.Context(command, info_name=word, parent=here)
    click.echo(here.get_help())

"""Options that several commands share: where the server is, `--json`, and everything that can be said about a bag."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from windfall.bounds import MAX_TASKS
from windfall.cli.help import SectionedCommand
from windfall.cli.show.output import note
from windfall.client.local.server import LocalServer, announced_server, here, state_location
from windfall.errors import BadInput, Unreachable, WindfallError
from windfall.store.location import shown
from windfall.units import parse_duration, show_duration

if TYPE_CHECKING:
    from windfall.bags.settings import Text
    from windfall.bags.submission import Request
    from windfall.client import Client, Job

F = TypeVar("F", bound=Callable[..., Any])


def say_silence(error: WindfallError, left_s: float) -> None:
    """Say on standard error that the server does not answer, and for how long it will be asked."""
    note(f"windfall: {error.message}; asking again for {show_duration(left_s)} (Ctrl-C leaves)")


class Place(Struct):
    """Where the server is: at an address, or on a state."""

    server: str | None = None
    token: str | None = None
    state: str | None = None
    cafile: str | None = None
    token_file: str | None = None  # where the token was read, for commands that are suggested
    patience_s: float | None = None  # how long to ask a server that is away, if that was said
    typed_in: str = ""  # suggested commands are meant to be typed in this directory, if not here

    @property
    def address(self) -> str | None:
        """The server that was named; a state that was named goes before WINDFALL_SERVER."""
        return self.server or (None if self.state else os.environ.get("WINDFALL_SERVER"))

    def open(self, patience_s: float = 0.0) -> Client:
        """A client for looking and telling: no worker is started, and no state directory is made.

        `patience_s`: how long to ask a server that goes away meanwhile, if `--patience` does not say."""
        from windfall.client import Client  # not above: a command that reads the log itself needs none

        patience_s = patience_s if self.patience_s is None else self.patience_s
        if self.address:
            client = Client(self.address, self.token, patience_s=patience_s, cafile=self.cafile)
        else:
            self.require_jobs()
            client = Client(local=LocalServer(state_location(self.state), worker=False), patience_s=patience_s)
        client.transport.on_silence = say_silence
        return client

    def runs(self) -> bool:
        """Whether a server is named, or one runs on the state."""
        return bool(self.address) or announced_server(state_location(self.state).directory) is not None

    def require_jobs(self) -> None:
        """Refuse to look where nothing was ever kept: a server started there would leave an empty directory behind."""
        if self.address:
            return
        from windfall.store import holds_state

        state = state_location(self.state)
        if announced_server(state.directory) is None and not holds_state(state):
            if self.state:
                raise Unreachable(f"{state} holds no jobs", hint="is it the right one? See --state")
            raise Unreachable(
                f"no server is known: {state} holds no jobs, and neither --server nor WINDFALL_SERVER is set",
                hint="try: windfall run tasks.txt (all in one), or --server URL --token T",
            )

    @property
    def words(self) -> str:
        """What to add to a command that is suggested, so that it finds the same server."""
        if self.typed_in:
            return ""
        if self.server:
            more = {"--token-file": self.token_file, "--cafile": self.cafile}
            said = [f" {option} {shlex.quote(value)}" for option, value in more.items() if value]
            return f" --server {self.server}" + "".join(said)
        if not self.state:
            return ""
        return f" --state {shlex.quote(shown(self.state))}"


def _duration(ctx: click.Context, option: click.Parameter, text: str | None) -> float | None:
    return None if text is None else parse_duration(text, option.opts[0])


def place_options(command: F) -> F:
    """`--server`, `--token`, `--token-file`, `--cafile` and `--state`, given to the command as `place`."""
    return _place_options(command, "--state", "--state-dir")


def staying_place_options(command: F) -> F:
    """The same for a command that stays for a while, with `--patience`: how long to ask a server that goes away."""

    @click.option(
        "--patience", "patience_s", metavar="TIME", callback=_duration,
        help=f"Ask a server that goes away again for this long.  [default: {STAY_S:g}s]",
    )  # fmt: skip
    @place_options
    @functools.wraps(command)
    def wrapped(*args: Any, place: Place, patience_s: float | None, **kwargs: Any) -> Any:
        place.patience_s = patience_s
        return command(*args, place=place, **kwargs)

    return wrapped  # type: ignore[return-value]


def place_options_beside_states(command: F) -> F:
    """The same for a command whose own `--state` means another thing: the directory is `--state-dir` only."""
    return _place_options(command, "--state-dir")


STAY_S = 8.0
"""Seconds for which a command that stays asks a server that went away, unless told otherwise."""


def _place_options(command: F, *names: str) -> F:
    @click.option("--server", metavar="URL", help="Address of the server.  [env: WINDFALL_SERVER]")
    @click.option("--token", metavar="T", help="Access token.  [env: WINDFALL_TOKEN]")
    @click.option("--token-file", metavar="FILE", help="Read the token from a file: ps does not show it.")
    @click.option("--cafile", metavar="FILE", help="Certificate of a private authority, for https.")
    @click.option(
        *names,
        "directory",
        metavar="STATE",
        help="Directory or postgresql://..., without a server.  [env: WINDFALL_STATE; default: .windfall]",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, server: str | None, token: str | None, token_file: str | None, cafile: str | None,
        directory: str | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        if server and directory:
            raise BadInput("--server and --state name two places", hint="leave one of them out")
        if token and token_file:
            raise BadInput("--token and --token-file say the same", hint="leave one of them out")
        token = _token_in(token_file) if token_file else token
        return command(*args, place=Place(server, token, directory, cafile, token_file), **kwargs)

    return wrapped  # type: ignore[return-value]


def _token_in(file: str) -> str:
    from windfall.bags.reading import open_file

    with open_file(Path(file)) as stream:
        token = stream.read(4096).decode(errors="replace").strip()
    if not token:
        raise BadInput(f"--token-file {file}: the file is empty", hint="windfall token create prints a token")
    return token


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


max_wait_option = click.option(
    "--max-wait", "max_wait_s", metavar="TIME", callback=_duration,
    help="Give up (exit code 4) when no host can run it for this long.  [default: never]",
)  # fmt: skip


# option -> policy, and what it says. The six policies of GridBot, each a ClassAd expression.
_POLICIES = {
    "require": ("JobRequirements", "ClassAd: which hosts may run it.  [default: any]"),
    "rank": ("Rank", "ClassAd: a number; the highest goes first.  [default: --priority]"),
    "concurrency": (
        "Concurrency",
        "ClassAd: tasks that a host holds, running ones included.  [default: its slots, more on a slow link]",
    ),
    "attempt-deadline": ("Deadline", "ClassAd: seconds until a silent attempt is given up.  [default: learned]"),
    "replicate": (
        "ReplicationRequirements",
        "ClassAd: whether to start a replica.  [default: slow attempts in the tail]",
    ),
    "grid": ("GridPolicy", "ClassAd: which pools may be asked for hosts.  [default: any]"),
}
POLICY_NAMES = [*(option.replace("-", "_") for option in _POLICIES), "policies"]


class BehindDashes(SectionedCommand):
    """A command of tasks: what stands behind `--` is the user's own command, passed on untouched as `template`."""

    sections: Mapping[str, Sequence[str]] = {
        "Tasks": ("csv", "range_", "stdin", "job_file", "workflow", "workflow_class", "emulate", "time_scale", "resume",
                  "changed", "dry_run", "name", "tags"),
        "Files and environment": ("inputs", "outputs", "cwd", "env", "stdin_text", "output_cap", "checkpoint"),
        "Resources of a task": ("cpus", "memory", "fixed_memory", "gpus", "resources", "nodes", "pin", "image", "wall",
                                "estimate", "spread", "slots"),
        "Retries": ("max_failures", "max_losses", "max_failed_tasks", "grace"),
        "Deadline and money": ("deadline", "budget", "yes", "pools", "pools_file", "fleet", "reject",
                               "accept_late", "planner", "confidence", "data", "output_data"),
        "Policies": ("priority", *POLICY_NAMES, "replication", "max_replicas", "quorum", "validator", "attributes"),
        "Server and output": ("server", "token", "token_file", "cafile", "patience_s", "directory", "listen", "tail",
                              "max_wait_s", "as_json", "help"),
    }  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        template: list[str] = []
        if "--" in args:
            at = args.index("--")
            args, template = args[:at], args[at + 1 :]
            if not template:
                raise click.UsageError("nothing stands behind --. As in: -- ./sim --seed {}", ctx)
        rest = super().parse_args(ctx, args)
        ctx.params["template"] = template
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


POLICY_OPTIONS = [
    *(click.option(f"--{option}", metavar="EXPR", help=text) for option, (_, text) in _POLICIES.items()),
    click.option(
        "--policy", "policies", multiple=True, metavar="NAME=EXPR", help="Any policy by its name. Repeatable."
    ),
]


def policy_options(command: F) -> F:
    """An option for each policy; `policy_texts` reads them."""
    for option in reversed(POLICY_OPTIONS):
        command = option(command)
    return command


def policy_texts(said: dict[str, Any]) -> dict[str, str]:
    """The policies among the values of options, which are taken out; under their own names, an empty text kept."""
    from windfall.policy.names import policy_name

    texts = {policy_name(name) or name: text for name, text in pairs(said.pop("policies"), "--policy").items()}
    for option, (policy, _) in _POLICIES.items():
        text = said.pop(option.replace("-", "_"))
        if text is not None:
            texts[policy] = text
    return texts


_BAG_OPTIONS: list[Callable[[Any], Any]] = [
    click.argument("tasks", nargs=-1, metavar="[TASKS]"),
    click.option("--csv", metavar="FILE", help="One task per row; write {column} in the command."),
    click.option("--range", "range_", metavar="A-B[:STEP]", help="One task per number; write {} in the command."),
    click.option("--stdin", is_flag=True, help="One task per line of standard input."),
    click.option("-f", "--file", "job_file", metavar="JOB.TOML", help="Read a job file."),
    click.option("--workflow", metavar="FILE", help="Read a workflow: workflow.toml or WfFormat 1.5 (.json)."),
    click.option(
        "--class",
        "workflow_class",
        metavar="NAME",
        help="With --workflow: name its class. Alone: run one more of that class.",
    ),
    click.option("--emulate", is_flag=True, help="With --workflow: sleep for the recorded run times instead."),
    click.option(
        "--time-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="Speed of --emulate and of emulated clouds.  [default: 1]",
    ),
    click.option("--name", help="Name of the job.  [default: that of its program or file]"),
    click.option("--deadline", metavar="TIME", help="Finish within 2h30m, or by a clock time: 18:00.  [default: none]"),
    click.option("--budget", metavar="USD", help="Spend at most this many dollars.  [default: no limit]"),
    click.option(
        "--pool",
        "pools",
        multiple=True,
        metavar="NAME",
        help="Rent machines from this pool. Repeatable.  [default: rent nothing]",
    ),
    click.option("--fleet", metavar="NAME", help="Share the machines of this fleet.  [default: its own machines]"),
    click.option("--planner", metavar="NAME", help="Planner that decides what to rent.  [default: windfall]"),
    click.option("--confidence", type=float, metavar="P", help="Wanted chance of being in time.  [default: 0.95]"),
    click.option("--checkpoint", metavar="TIME", help="Save checkpoints this often, or `auto`.  [default: never]"),
    click.option("--estimate", metavar="TIME", help="First guess of a task's run time.  [default: 1m, then learned]"),
    click.option(
        "--spread",
        type=float,
        metavar="S",
        help="How much run times vary: standard deviation of their logarithm.  [default: learned]",
    ),
    click.option("--env", multiple=True, metavar="K[=V]", help="Set a variable, or pass on yours. Repeatable."),
    click.option(
        "--cwd", metavar="DIR", help="Working directory of the tasks.  [default: run: here; submit: a new one]"
    ),
    click.option(
        "--stdin-text", metavar="TEXT", help="Standard input of each task; placeholders work.  [default: empty]"
    ),
    click.option(
        "--input", "inputs", multiple=True, metavar="[NAME=]FILE", help="Send a file to each task. Repeatable."
    ),
    click.option(
        "--output", "outputs", multiple=True, metavar="PATH", help="Bring a file of each task back. Repeatable."
    ),
    click.option("--cpus", type=float, metavar="N", help="Cores per task.  [default: 1]"),
    click.option("--memory", metavar="SIZE", help="Memory per task: 2G, or 2G*attempt to grow.  [default: no limit]"),
    click.option(
        "--fixed-memory", is_flag=True, default=None, help="Do not give a task more that died of too little memory."
    ),
    click.option("--gpus", type=float, metavar="N", help="GPUs per task; 0.5 shares one with others.  [default: 0]"),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=N",
        help="Units per task of what hosts or the server have: licence=1. Repeatable.",
    ),
    click.option(
        "--nodes", type=int, metavar="N", help="Whole hosts per task, of one pool and at once.  [default: slots of one]"
    ),
    click.option(
        "--data",
        multiple=True,
        metavar="REGION=SIZE",
        help="What each machine fetches, for plans; s3:// inputs are counted anyway. Repeatable.",
    ),
    click.option(
        "--output-data",
        metavar="[REGION=]SIZE",
        help="What each task writes to stores, for plans.  [default: not counted]",
    ),
    click.option("--pin", is_flag=True, default=None, help="Keep each task on cores of its own, of one NUMA node."),
    click.option("--image", metavar="IMAGE", help="Run tasks in a container of this image.  [default: none]"),
    click.option("--wall", metavar="TIME", help="Kill an attempt after this time.  [default: no limit]"),
    click.option(
        "--max-failures", type=int, metavar="N", help="Failed attempts after which a task has failed.  [default: 3]"
    ),
    click.option(
        "--max-losses", type=int, metavar="N", help="Lost hosts after which a task has failed.  [default: 20]"
    ),
    click.option(
        "--max-failed-tasks", type=int, metavar="N", help="Stop the job when more tasks fail.  [default: no limit]"
    ),
    click.option("--priority", type=float, metavar="P", help="Jobs with a higher number go first.  [default: 0]"),
    click.option(
        "--replication",
        type=click.Choice(["idle-slots", "queued"]),
        help="Make replicas for idle slots, or queue them by rank.  [default: as the server says]",
    ),
    click.option(
        "--max-replicas", type=int, metavar="N", help="Replicas of a task at a time.  [default: as the server says]"
    ),
    click.option(
        "--quorum", type=int, metavar="N", help="Volunteers may run it; N of them must agree.  [default: not for them]"
    ),
    click.option("--validator", metavar="NAME", help="What of volunteers' results must agree.  [default: all bytes]"),
    click.option("--grace", metavar="TIME", help="Time from SIGTERM to SIGKILL.  [default: 10s]"),
    click.option("--output-cap", metavar="SIZE", help="Output kept per task.  [default: 1M]"),
    *POLICY_OPTIONS,
    click.option(
        "--attribute", "attributes", multiple=True, metavar="K=V", help="A value that policies can read. Repeatable."
    ),
    click.option("--tag", "tags", multiple=True, metavar="K=V", help="A label of your own. Repeatable."),
]


def bag_options(command: F) -> F:
    """Everything that can be said about a bag, given to the command as `request`."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        said = {name: kwargs.pop(name) for name in _BAG_NAMES}
        return command(*args, request=_request(**said), **kwargs)

    decorated: Any = wrapped
    for option in reversed(_BAG_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_BAG_NAMES = [
    "tasks", "csv", "range_", "stdin", "job_file", "workflow", "workflow_class", "emulate", "time_scale", "name",
    "fleet", "deadline", "budget", "pools", "planner", "confidence", "checkpoint", "estimate", "spread", "env", "cwd",
    "stdin_text", "inputs", "outputs", "cpus", "memory", "fixed_memory", "wall", "gpus", "resources", "nodes",
    "pin", "image", "data", "output_data", "max_failures", "max_losses",
    "max_failed_tasks", "quorum", "validator",
    "priority", "replication", "max_replicas", "grace", "output_cap", *POLICY_NAMES, "attributes", "tags", "template",
]  # fmt: skip


def _request(
    tasks: tuple[str, ...],
    csv: str | None,
    range_: str | None,
    stdin: bool,
    job_file: str | None,
    workflow: str | None,
    workflow_class: str | None,
    emulate: bool,
    time_scale: float,
    template: list[str],
    env: tuple[str, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    pools: tuple[str, ...],
    stdin_text: str | None,
    attributes: tuple[str, ...],
    tags: tuple[str, ...],
    resources: tuple[str, ...],
    data: tuple[str, ...],
    **rest: Any,
) -> Request:
    from windfall.bags.settings import Settings
    from windfall.bags.submission import Request
    from windfall.resources import GPUS, read_pairs

    here()
    if len(tasks) > 1:
        raise BadInput(
            f"one list of tasks, not {len(tasks)}: {' '.join(tasks[:4])}",
            hint="values come from a list, or by standard input: printf '%s\\n' a b c | windfall run --stdin -- echo {}"
            if ":::" in tasks
            else "put a command behind --, as in: windfall run --range 1-10 -- ./sim --seed {}",
        )
    file = tasks[0] if tasks else None
    policies = policy_texts(rest)
    amounts = read_pairs(resources)
    if rest.get("gpus") is not None and GPUS in amounts:
        raise BadInput("--gpus and --resource gpus=N say the same", hint="say it once: --gpus 1")
    settings = Settings(
        env=_environment(env),
        inputs=list(inputs),
        outputs=list(outputs),
        pools=list(pools),
        stdin=stdin_text,
        policies={name: text for name, text in policies.items() if text},
        attributes={key: literal(text) for key, text in pairs(attributes, "--attribute").items()},
        tags=pairs(tags, "--tag"),
        resources=amounts,
        data=dict(pairs(data, "--data")),
        **rest,
    )
    return Request(
        tasks=None if file == "-" else file,
        csv=csv,
        range=range_,
        stdin=stdin or file == "-",
        job_file=job_file,
        command=template,
        settings=settings,
        owner=owner(),
        workflow=workflow,
        workflow_class=workflow_class or "",
        emulate=emulate,
        time_scale=time_scale,
    )


def owner() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} {text}: a name and a value are needed", hint=f"as in: {option} NAME=VALUE")
        pairs[name.strip()] = value
    return pairs


def _environment(texts: tuple[str, ...]) -> dict[str, Text]:
    from windfall.bags.settings import Verbatim

    pairs: dict[str, Text] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise BadInput(f"--env {name}: there is no such variable here", hint=f"give it a value: --env {name}=VALUE")
        pairs[name] = value if equals else Verbatim(os.environ[name])
    return pairs


def literal(text: str) -> str | float | bool:
    """A value of an attribute: a number, true or false, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def task_name(text: str) -> int | str:
    """The type of an argument TASK: a task's number or, in a workflow, its name."""
    if text.startswith("-"):
        raise click.BadParameter(f"{text} is no task")
    return int(text) if text.isdecimal() else text


_TASKS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*\Z")


def task_names(text: str) -> list[int | str]:
    """The type of an argument TASK that may name several: `17`, `20-29`, `3,20-29`, or a name."""
    if not _TASKS.match(text):
        return [task_name(text)]
    numbers: list[int | str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and int(last) < int(first):
            raise click.BadParameter(f"{part} is reversed: write {last}-{first}")
        if dash and int(last) - int(first) >= MAX_TASKS:
            raise click.BadParameter(f"{part} names more tasks than any job has")
        numbers += range(int(first), int(last if dash else first) + 1)
    return numbers


def all_tasks(given: Iterable[list[int | str]]) -> list[int | str]:
    """The tasks of several arguments, each once."""
    return list(dict.fromkeys(task for tasks in given for task in tasks))


def find_task(client: Client, reference: str, task: int | str | None) -> tuple[Job, int | None]:
    """A job, and a task of it if one is named: `fit 17`, `fit.17`, `fit merge` or `fit.merge`."""
    try:
        job = client.job(reference)
    except WindfallError as error:
        name, dot, named = reference.rpartition(".")
        if error.code != "no-such-job" or task is not None or not (dot and name and named):
            raise
        try:
            job, number = find_task(client, name, None)
        except WindfallError as second:
            raise error if second.code == "no-such-job" else second from None
        if number is not None:
            raise
        task = task_name(named)
    return job, None if task is None else job.number_of(task)

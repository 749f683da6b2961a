"""`windfall run`: a server of its own, a worker on this host, progress, an exit code. `windfall submit`: send only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from windfall.api.answers import JobPool
from windfall.bags.submission import Request, Submission, directories, read_job
from windfall.bags.template import BRACES
from windfall.cli.exits import Terminated, ending, good_order, output_lost
from windfall.cli.options import (
    STAY_S,
    BehindDashes,
    Place,
    bag_options,
    json_option,
    max_wait_option,
    say_silence,
    staying_place_options,
)
from windfall.cli.run import continuing
from windfall.cli.run.afford import check_budget, say_what_cannot_be_promised
from windfall.cli.run.dry import show_commands
from windfall.cli.run.follow import follow
from windfall.cli.run.foresee import Foresight
from windfall.cli.show.output import busy, deadline_words, note, plain, plural, print_json
from windfall.cli.show.summary import INTERRUPTED, document, exit_code, print_summary
from windfall.client import Client, Job
from windfall.client.local.server import LocalServer, here, running_server, state_location
from windfall.client.results import ENDED
from windfall.errors import BadInput
from windfall.store.location import StateLocation

Json = dict[str, Any]
_RELEASED_S = 10.0
"""How long to wait for the final bill of a job that has ended."""

_SENT_AT_ONCE = 10_000
"""Fewer tasks than these are sent before a person could read about it."""


@click.command(cls=BehindDashes)
@bag_options
@click.option(
    "--slots", type=click.IntRange(1, 4096), metavar="N", help="Tasks at once on this host.  [default: one per core]"
)
@click.option("--pools", "pools_file", metavar="FILE", help="A pools.toml that describes the pools.  [default: none]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where hosts of --pools reach this run: 0.0.0.0:7272.  [default: from this machine only]",
)
@click.option("--tail", is_flag=True, help="Print what tasks write, as they write it, instead of a bar.")
@click.option("--resume", metavar="JOB", help="Continue a stopped job: its number, its name, or last.")
@click.option(
    "--changed",
    is_flag=True,
    help="Leave out tasks done before whose command, parameters and files are the same.",
)
@click.option("--dry-run", is_flag=True, help="Print the command of each task, and start nothing.")
@click.option("--yes", is_flag=True, help="Start although the forecast lies above the budget.")
@max_wait_option
@staying_place_options
@json_option
def run(
    request: Request,
    slots: int | None,
    pools_file: str | None,
    listen: str | None,
    tail: bool,
    resume: str | None,
    changed: bool,
    dry_run: bool,
    yes: bool,
    max_wait_s: float | None,
    place: Place,
    as_json: bool,
) -> int:
    """Run a bag of tasks, or a workflow, to its end, here and now.

    All state is kept in .windfall/: whatever is killed, the same command again continues the job. Ctrl-C once starts
    no more tasks and lets running ones finish; twice stops at once.

    \b
    Examples:
      windfall run tasks.txt                              one command per line
      windfall run --range 1-1000 -- ./sim --seed {}
      windfall run --csv runs.csv -- ./fit --x {x} --seed {seed}
      ls *.log | windfall run --stdin -- gzip {}
      windfall run job.toml
      windfall run workflow.toml --deadline 2h            tasks that wait for each other
      windfall run --workflow wf.json --emulate --time-scale 100
      windfall run --resume last                          continue it
      windfall run --resume last tasks.txt                and append the lines that are new
      windfall run --changed --csv runs.csv -- ./fit {x}  only rows that are new or changed
      windfall run --dry-run --csv runs.csv -- ./fit {x}  print the commands, start nothing
      windfall run --changed workflow.toml                only tasks that have changed, and those after them
      windfall run tasks.txt --deadline 1h --pools pools.toml --pool cloud

    \b
    Exit codes: 0 done, 1 tasks failed, 2 bad input, 3 no server, 4 deadline missed or budget used up,
    130 stopped by Ctrl-C.
    """
    if tail and as_json:
        raise BadInput("--tail and --json both write to standard output", hint="leave one of them out")
    if changed and resume is not None:
        raise BadInput("--changed starts a new job, and --resume continues one", hint="leave one of them out")
    if dry_run and (changed or resume is not None):
        raise BadInput("--dry-run shows a whole list", hint="leave --resume and --changed out")
    if listen is not None and place.address:
        raise BadInput("--listen goes with a server of one's own", hint="leave it out: --server names one that listens")
    pools = _pools(pools_file, place, request.time_scale)
    prepared = _prepared(request, resume, place)
    if dry_run:
        show_commands(prepared, as_json)
        return 0
    bag = _with_pool(prepared, pools)
    _refuse_missing_directory(bag, pools, place)
    if isinstance(bag, Submission) and not yes:
        check_budget(bag, pools, place)
        say_what_cannot_be_promised(bag, pools, place)
    return run_bag(
        place, bag, resume=resume, slots=slots, max_wait_s=max_wait_s, as_json=as_json, pools=pools, tail=tail,
        listen=listen, changed=changed,
    )  # fmt: skip


def run_bag(
    place: Place,
    bag: Submission | Request | None,
    *,
    resume: str | None = None,
    slots: int | None = None,
    max_wait_s: float | None = None,
    as_json: bool = False,
    at_end: Callable[[Job], None] | None = None,
    pools: Sequence[Any] = (),
    tail: bool = False,
    listen: str | None = None,
    changed: bool = False,
) -> int:
    """Run a bag, or continue the job that `resume` names. Returns the exit code."""
    with good_order():
        session = Session(place, slots, pools, listen)
        if pools and not session.owns_server:
            note("a server runs here already: what can be rented is what it was told, and --pools is not looked at")
        try:
            status = _run(session, bag, resume, max_wait_s, tail, changed)
            code = _finish(session, status, as_json)
            if at_end is not None and session.job is not None:
                at_end(session.job)
            if session.owns_server and code != INTERRUPTED:
                _stay_for_others(session)
            return code
        except (KeyboardInterrupt, Terminated) as stop:
            session.stop_now()
            return stop.exit_code if isinstance(stop, Terminated) else INTERRUPTED
        finally:
            session.client.close()


@click.command(cls=BehindDashes)
@bag_options
@click.option("--reject", is_flag=True, help="Submit nothing if the fleet would not keep the deadline (exit code 4).")
@click.option("--accept-late", is_flag=True, help="Submit in any case, and do not ask whether the fleet is in time.")
@staying_place_options
@json_option
def submit(request: Request, place: Place, as_json: bool, reject: bool, accept_late: bool) -> None:
    """Submit a bag of tasks to a server and return at once; takes what `windfall run` takes.

    Tasks run in a fresh directory of their own unless --cwd says otherwise. Prints the number of the job.

    \b
    Example:
      windfall submit --csv runs.csv --input fit.py -- python3 fit.py --x {x} --seed {seed}
      windfall wait last
      windfall submit --workflow wf.toml --class nightly --deadline 2h
      windfall submit --class nightly --deadline 2h --input raw.csv=tuesday.csv
    """
    read = _read(request)
    state = None if place.address else state_location(place.state)
    idle = state is not None and running_server(state.directory) is None
    _refuse_missing_directory(read, (), place)
    if isinstance(read, Submission):
        _warn_of_shared_outputs(read)
    with _client_for(place, state) as client:
        bag = _of_class(client, read)
        bag.spec = msgspec.structs.replace(bag.spec, key=f"submit-{os.urandom(12).hex()}")
        sent = _send(client, bag, reject=reject, accept_late=accept_late)
    if as_json:
        print_json({"job": sent.id, "name": sent.name, "tasks": bag.count, "admission": sent.admission})
        return
    click.echo(sent.id)
    if idle:
        where = place.words
        note(
            f"no server runs on {state}: start one (windfall server{where}), or windfall run --resume {sent.id}{where}"
        )
    else:
        due = "" if bag.spec.deadline_s is None else f", deadline {deadline_words(time.time() + bag.spec.deadline_s)}"
        note(f"job {sent.id} '{sent.name}', {plural(bag.count, 'task')}{due}")
        note(f"  try: windfall status {sent.id}{place.words}")


def _client_for(place: Place, state: StateLocation | None) -> Client:
    if state is None:
        return place.open(patience_s=STAY_S)
    return Client(local=LocalServer(state, worker=False), patience_s=30.0)


# -- before ----------------------------------------------------------------------------------------------------------


def recognised(request: Request) -> Request:
    """The request with a job.toml or a workflow taken for what it is, however it was named."""
    file = request.tasks or request.job_file
    if file is None or request.workflow or not file.lower().endswith((".toml", ".json")):
        return request
    from windfall.workflows.read import is_workflow_file

    if is_workflow_file(file):
        return msgspec.structs.replace(request, tasks=None, job_file=None, workflow=file)
    if file.lower().endswith(".toml") and not request.job_file:
        return msgspec.structs.replace(request, tasks=None, job_file=file)
    return request


def _read(request: Request) -> Submission | Request:
    """What to submit, read and checked; the request itself if it names a class that only the server knows."""
    request = recognised(request)
    if request.emulate and not request.workflow:
        raise BadInput("--emulate goes with --workflow", hint="try: windfall run --workflow wf.json --emulate")
    if request.workflow_class and not request.workflow:
        return request
    if request.workflow:
        from windfall.workflows.submission import read_workflow

        bag = read_workflow(request)
    else:
        bag = read_job(request, sys.stdin.buffer)
    if bag.spec.policies:
        from windfall.policy import compile_policies

        compile_policies(bag.spec.policies, {"BOT": [*bag.spec.tags, *bag.spec.attributes]})
    for remark in [*bag.remarks, *bag.unmeasured]:
        note(f"windfall: {remark}")
    return bag


def _of_class(client: Client, bag: Submission | Request) -> Submission:
    """Another job of the class that a request names."""
    if isinstance(bag, Submission):
        return bag
    from windfall.workflows.submission import instance_of

    return instance_of(client.workflow_class(bag.workflow_class), bag)


def _prepared(request: Request, resume: str | None, place: Place) -> Submission | Request | None:
    """The bag, read and checked whole before anything is started."""
    if resume is not None:
        has_list = bool(request.tasks or request.csv or request.stdin or request.job_file)
        if not has_list and (request.command or request.range or request.workflow):
            raise BadInput("--resume takes the job as it is", hint=f"try: windfall run --resume {resume}")
        place.require_jobs()
        if not has_list:
            return None
    bag = _read(request)
    if isinstance(bag, Request):
        place.require_jobs()
        return bag
    spec = bag.spec
    if spec.cwd is None and spec.task_cwd is None and not spec.inputs and not place.address and bag.shape is None:
        # As if it had been typed here. With inputs, each task has a directory of its own that holds them.
        bag.spec = msgspec.structs.replace(bag.spec, cwd=str(here()))
    _warn_of_shared_outputs(bag)
    return bag


def _warn_of_shared_outputs(bag: Submission) -> None:
    """Tasks that run in one directory and bring back a file of one name may bring back each other's."""
    if bag.spec.cwd is None or bag.spec.task_cwd is not None or bag.count < 2 or bag.shape is not None:
        return
    shared = [file for output in bag.spec.outputs if not BRACES.search(file := output.partition("=")[0])]
    if shared:
        own = "{}-{{#}}{}".format(*os.path.splitext(shared[0]))  # noqa: PTH122
        note(
            f"windfall: all tasks run in one directory and write the same '{shared[0]}', so one may bring back"
            f" another's\n  give each its own: --output '{own}'"
        )


def _pools(file: str | None, place: Place, time_scale: float) -> Sequence[Any]:
    if file is None:
        return ()
    if place.address:
        raise BadInput("--pools goes with a server of one's own", hint="configure it there: windfall server --pools")
    from windfall.pools.config import read_pools

    return read_pools(Path(file), None if time_scale == 1.0 else time_scale)


def _with_pool(bag: Submission | Request | None, pools: Sequence[Any]) -> Submission | Request | None:
    """A bag that names no pool rents from the only one that there is to rent from."""
    if not pools:
        return bag
    from windfall.pools.config import rents

    names = [pool.name for pool in pools if rents(pool)]
    named = bag.settings.pools if isinstance(bag, Request) else bag.spec.pools if bag is not None else names
    if not names or named:
        return bag
    if len(names) > 1:
        raise BadInput(
            f"{len(names)} pools rent machines, and the job names none of them",
            hint=f"add --pool NAME: {', '.join(names)}.  Nothing was started.",
        )
    note(f"renting from pool '{names[0]}', the only one that rents machines (--pool {names[0]})")
    if isinstance(bag, Request):
        return msgspec.structs.replace(bag, settings=msgspec.structs.replace(bag.settings, pools=names))
    assert bag is not None
    bag.spec = msgspec.structs.replace(bag.spec, pools=names)
    return bag


def _refuse_missing_directory(bag: Submission | Request | None, pools: Sequence[Any], place: Place) -> None:
    """Where the tasks run here and nowhere else, a directory that is not there is a slip."""
    if not isinstance(bag, Submission) or pools or place.address:
        return
    if running_server(state_location(place.state).directory) is not None:
        return  # it may have hosts elsewhere
    for folder in directories(bag):
        if not Path(folder).is_dir():
            raise BadInput(f"--cwd {folder}: no such directory", hint="make it first.  Nothing was started.")


class Session:
    """A client with a server: a running one, or one of our own that ends with us."""

    def __init__(self, place: Place, slots: int | None, pools: Sequence[Any] = (), listen: str | None = None) -> None:
        self.place = place
        self.began_s = time.time()
        self.local: LocalServer | None = None
        if place.address:
            self.client = place.open(patience_s=STAY_S)
        else:
            # With pools, hosts come from there: a local worker, which no plan counts on, would take reserved tasks.
            state = state_location(place.state)
            self.local = LocalServer(
                state, worker=not pools, slots=slots, idle=True, pools=pools, listen=listen or "127.0.0.1:0"
            )
            self.client = Client(local=self.local, patience_s=60.0)
            self.client.transport.on_silence = say_silence
        self.job: Job | None = None
        self.foresight: Foresight | None = None
        self.last: Json | None = None

    def keep(self, status: Json) -> None:
        """Remember the last status: it cannot be asked for once the server has stopped."""
        self.last = status

    def _progress_words(self) -> str:
        if self.last is None:
            return ""
        tasks = self.last["tasks"]
        return f" with {tasks['done']:,} of {tasks['total']:,} done"

    @property
    def owns_server(self) -> bool:
        return self.local is not None and self.local.is_ours

    def stop_now(self) -> None:
        """Ctrl-C twice, or SIGTERM: kill the tasks that run here; the job can be continued."""
        owned = self.owns_server
        if self.local is not None:
            with ending():
                self.local.close(now=True)
        if self.job is not None:
            what = f"stopped{self._progress_words()}" if owned else "left; its server goes on with the job"
            note(f"windfall: {what}.  {_how_to_go_on(self.job.id, self.place)}")
        else:
            note("windfall: interrupted before anything was submitted")


def _how_to_go_on(job: int, place: Place) -> str:
    return f"Continue: the same command again, or windfall run --resume {job}{place.words}"


# -- the run ---------------------------------------------------------------------------------------------------------


def _run(
    session: Session, bag: Submission | Request | None, resume: str | None, max_wait_s: float | None, tail: bool,
    changed: bool = False,
) -> Json:  # fmt: skip
    client = session.client
    if bag is None:
        job = client.job(resume or "last")
    elif resume is not None:
        job = continuing.resumed(client, resume, _of_class(client, bag))
    else:
        read = _of_class(client, bag)
        if changed:
            from windfall.cli.run.changed import only_changed

            left, before = only_changed(client, read)
            if left is None:
                session.job = client.job(before or "last")
                return plain(session.job.status())
            read = left
        job = continuing.submitted(client, read, _send, session.place.words)
    session.job = job
    status = job.status()
    if bag is None and status["state"] == "open":
        raise BadInput(
            f"job {job.id} '{job.name}' was interrupted while it was being submitted",
            hint="type the command that submitted it again: it goes on from there",
        )
    if session.owns_server:
        if bag is None and job.spec().get("streaming"):
            # No server ran: the program that could send more calls is gone.
            job.seal()
            note(f"job {job.id} '{job.name}' was left by a Python program: the calls that it had sent are run")
        _pause_leftovers(session, job)
    if status["state"] == "paused":
        status = job.change(paused=False)
    if session.local is not None:
        session.local.start_work()
    if status["state"] in ENDED:
        return plain(status)
    session.foresight = Foresight(client.transport.url, client.transport.token, job.id)
    try:
        return follow(job, max_wait_s, session.foresight, session.keep, tail)
    finally:
        session.foresight.close()


def _send(client: Client, bag: Submission, reject: bool = False, accept_late: bool = False) -> Job:
    """The job that was submitted; says if its fleet would not be in time."""
    if bag.count < _SENT_AT_ONCE:
        sent = client.send(bag, reject=reject, accept_late=accept_late)
    else:
        with busy(f"submitting {plural(bag.count, 'task')}") as show:

            def told(total: int) -> None:
                show(f"submitting {total:,} of {bag.count:,} tasks")

            sent = client.send(bag, told, reject=reject, accept_late=accept_late)
    for line in sent.admission["says"] if sent.admission is not None else ():
        note(line)
    job = client.job(sent.job)
    job.admission = sent.admission
    return job


def _pause_leftovers(session: Session, mine: Job) -> None:
    """Pause the unfinished jobs of earlier runs: a new command does not continue them."""
    for status in session.client.jobs("running"):
        if status["job"] != mine.id and status["submitted_s"] < session.began_s:
            session.client.job(status["job"]).change(paused=True)
            words = session.place.words
            note(f"job {status['job']} '{status['name']}' is unfinished: windfall run --resume {status['job']}{words}")


# -- after -----------------------------------------------------------------------------------------------------------


def _finish(session: Session, status: Json, as_json: bool) -> int:
    assert session.job is not None
    status = _settled_bill(session.job, status)
    groups = session.job.groups() if status["causes"] or status["tasks"]["failed"] else []
    try:
        _print_end(session, status, groups, session.job.pools(), as_json)
        lost = 0
    except OSError as error:
        # The reader of our output is gone or its disk is full: how the job ended is still told by the exit code.
        lost = output_lost(error)
    code = exit_code(status) or lost
    if (status.get("money") or {}).get("held_by_budget"):
        raised = f"windfall change {session.job.id} --budget USD && windfall run --resume {session.job.id}"
        note(f"windfall: stopped by the budget.  Go on with a larger one: {raised}{session.place.words}")
    if code == INTERRUPTED:
        note(f"windfall: stopped.  {_how_to_go_on(session.job.id, session.place)}")
    return code


def _print_end(
    session: Session, status: Json, groups: Sequence[Mapping[str, Any]], pools: Sequence[JobPool], as_json: bool
) -> None:
    if as_json:
        print_json(document(status, groups, pools))
    else:
        print_summary(status, groups, session.place, resume=session.owns_server, pools=pools)
        if session.foresight is not None and session.foresight.words:
            click.echo(f"  {session.foresight.words}")
    sys.stdout.flush()


def _settled_bill(job: Job, status: Json) -> Json:
    """The status once the machines of a job that has ended are given back: only then is its bill final."""
    until_s = time.monotonic() + _RELEASED_S
    while status["state"] in ENDED and (status.get("money") or {"machines": {"there": 0}})["machines"]["there"]:
        if time.monotonic() > until_s:
            break
        time.sleep(0.1)
        status = plain(job.status())
    return status


def _stay_for_others(session: Session) -> None:
    """Keep our server up while other runs use it."""
    said = False
    while others := [s for s in session.client.jobs("running") if s["tasks"]["running"]]:
        if not said:
            note(f"job {others[0]['job']} '{others[0]['name']}' runs on this server too: staying until it has ended")
            said = True
        time.sleep(1.0)

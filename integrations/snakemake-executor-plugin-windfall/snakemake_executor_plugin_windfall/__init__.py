"""Snakemake's jobs as tasks of Windfall. Snakemake decides what runs when; Windfall, where and by when.

Jobs that are ready at one moment, and need the same, make one bag. Touches a server of Windfall and Snakemake's folder.
"""
# Snakemake reads the types of ExecutorSettings: annotations must not become texts here.

import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase, SharedFSUsage

from snakemake_executor_plugin_windfall.deadlines import RunTimes, longest_paths, share_s
from windfall import Client
from windfall.client.results import ENDED, Task, cause_text
from windfall.errors import WindfallError
from windfall.units import parse_deadline

OWN_MEMORY_MB = 500
"""What Snakemake itself takes in each job, beside what the rule asks for."""
CHECK_EVERY_S = 0.5
PATHS_FOR_S = 30.0
"""Seconds for which the longest paths of a DAG are taken for true."""
LOGS = Path(".snakemake/windfall_logs")


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Each field is an option: `--windfall-deadline 2h`."""

    deadline: Optional[str] = field(
        default=None, metadata={"help": "By when the whole workflow has to be done: 2h, 18:00, 'tomorrow 6:00'."}
    )
    server: Optional[str] = field(
        default=None,
        metadata={"help": "The address of a server. Without it: the one on --windfall-state, or one of our own."},
    )
    token: Optional[str] = field(
        default=None, metadata={"help": "The token of that server. Better in the environment.", "env_var": True}
    )
    state: Optional[str] = field(
        default=None, metadata={"help": "Where a server of our own keeps everything (.windfall)."}
    )
    slots: Optional[int] = field(
        default=None, metadata={"help": "Jobs at once on this host, with a server of our own.", "type": int}
    )
    pools_file: Optional[str] = field(
        default=None, metadata={"help": "A pools.toml: jobs run on what its pools give, and not on this host."}
    )
    pool: Optional[str] = field(
        default=None, metadata={"help": "Pools that jobs may use, and rent machines from: a,b (all of the server's)."}
    )
    fleet: Optional[str] = field(
        default=None, metadata={"help": "A fleet of the server whose machines the jobs share; needs a deadline."}
    )
    keep_logs: bool = field(
        default=False,
        metadata={"help": f"Keep the output of jobs that succeeded, too, in {LOGS} (of failed ones always)."},
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=True,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=True,
    init_seconds_before_status_checks=0,
)


class Executor(RemoteExecutor):
    @property
    def common_settings(self) -> CommonSettings:
        """As above; jobs that run by the shared Snakemake have its plug-ins and install none.

        They would install them into one folder of the shared working directory, which fails if two do so at once.
        """
        shared = SharedFSUsage.SOFTWARE_DEPLOYMENT in self.workflow.storage_settings.shared_fs_usage
        return replace(common_settings, auto_deploy_default_storage_provider=not shared)

    def __post_init__(self) -> None:
        self.settings: ExecutorSettings = self.workflow.executor_settings or ExecutorSettings()
        self.next_seconds_between_status_checks = CHECK_EVERY_S
        self.run_times = RunTimes()
        self._paths: Any = {}
        self._paths_until_s = 0.0
        self._out: dict[int, set[int]] = defaultdict(set)  # tasks that have not ended, by job of Windfall
        self._jobs: dict[int, Any] = {}
        try:
            now_t = time.time()
            said = self.settings.deadline
            self._deadline_t = None if said is None else now_t + parse_deadline(said, now_t).in_s
            self._client = self._connect()
        except WindfallError as error:
            raise WorkflowError(str(error)) from None

    def _connect(self) -> Client:
        said = self.settings
        if said.server:
            return Client(said.server, said.token)
        return Client(state=said.state, slots=said.slots, pools=said.pools_file)

    # -- jobs out ------------------------------------------------------------------------------------------------------

    def run_job(self, job: Any) -> None:
        self._submit([job])

    def run_jobs(self, jobs: list[Any]) -> None:
        """Everything that is ready: one bag for all that need the same."""
        for job in jobs:
            self.run_job_pre(job)
        self._submit(jobs)

    def _submit(self, jobs: list[Any]) -> None:
        alike: dict[str, tuple[dict[str, Any], list[Any]]] = {}
        for job in jobs:
            needs = self._needs(job)
            alike.setdefault(repr(needs), (needs, []))[1].append(job)
        for needs, members in alike.values():
            try:
                bag = self._client.submit(["sh", "-c", "{}"], [self._command(job) for job in members], **needs)
            except WindfallError as error:
                raise WorkflowError(f"rule {members[0].name}: {error}") from None
            self._jobs[bag.id] = bag
            self._out[bag.id].update(range(len(members)))
            for task, job in enumerate(members):
                self.report_job_submission(SubmittedJobInfo(job, external_jobid=f"{bag.id}.{task}"))

    def _command(self, job: Any) -> str:
        """With shared files a script, so that variables with secrets stay in Snakemake's folder; else all of it."""
        if not self._shares_files:
            return str(self.format_job_exec(job))
        script = self.get_jobscript(job)
        self.write_jobscript(job, script)
        Path(script).chmod(0o700)
        return f"exec {_quoted(script)}"

    @property
    def _shares_files(self) -> bool:
        return SharedFSUsage.INPUT_OUTPUT in self.workflow.storage_settings.shared_fs_usage

    def _needs(self, job: Any) -> dict[str, Any]:
        """The settings of a job's bag, by its resources. Retries of failures are Snakemake's (`--retries`)."""
        resources = job.resources
        said_s = _minutes(resources.get("runtime"))
        estimate_s = self.run_times.measured_s(job.name) or said_s
        needs: dict[str, Any] = {
            "name": f"snakemake-{job.name}",  # a rule may be called `last` or `7`, a job may not
            "cpus": max(1, int(resources.get("_cores") or job.threads or 1)),
            "max_failures": 1,
            "tags": {"snakemake": "group" if job.is_group() else "rule"},
        }
        if isinstance(memory_mb := resources.get("mem_mb"), int):
            needs["memory"] = (memory_mb + OWN_MEMORY_MB) * 1_000_000
        if isinstance(gpus := resources.get("gpu"), int) and gpus > 0:
            needs["gpus"] = gpus
        if said_s is not None:
            needs["wall"] = said_s
        if estimate_s is not None:
            needs["estimate"] = estimate_s
        if self.workflow.storage_settings.assume_common_workdir:
            needs["cwd"] = str(Path.cwd())
        if self.settings.pool:
            needs["pools"] = self.settings.pool.split(",")
        if self.settings.fleet:
            needs["fleet"] = self.settings.fleet
        if self._deadline_t is not None:
            needs["deadline"] = round(self._share_s(job), 1)
        return needs

    # -- the deadline ----------------------------------------------------------------------------------------------

    def _share_s(self, job: Any) -> float:
        """Seconds from now by which a job has to end, so that the whole DAG can end in time."""
        now_s = time.monotonic()
        if now_s > self._paths_until_s:
            self._paths_until_s = now_s + PATHS_FOR_S
            self._paths = longest_paths(self.dag.needrun_jobs(), self._after, self._expected_s)
        members = list(job.jobs) if job.is_group() else [job]
        path_s = max(self._paths.get(member) or self._expected_s(member) for member in members)
        inside = set(members)
        own = longest_paths(members, lambda one: [x for x in self._after(one) if x in inside], self._expected_s)
        left_s = (self._deadline_t or 0.0) - time.time()
        return share_s(left_s, max(own.values()), max(path_s, *own.values()))

    def _after(self, job: Any) -> list[Any]:
        return [other for other in self.dag.depending[job] if self.dag.needrun(other)]

    def _expected_s(self, job: Any) -> float:
        return self.run_times.expected_s(job.rule.name, _minutes(job.resources.get("runtime")))

    # -- jobs back -----------------------------------------------------------------------------------------------------

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        asked: dict[int, dict[int, SubmittedJobInfo]] = defaultdict(dict)
        for info in active_jobs:
            number, _, task = (info.external_jobid or "").partition(".")
            asked[int(number)][int(task)] = info
        for number, infos in asked.items():
            async with self.status_rate_limiter:
                found = self._jobs[number].results(list(infos), wait=False)
                ended = {task.task: task for task in found if task.state in ENDED}
            for task, info in infos.items():
                if task in ended:
                    self._end(number, info, ended[task])
                else:
                    yield info

    def _end(self, number: int, info: SubmittedJobInfo, task: Task) -> None:
        self._out[number].discard(task.task)
        if not self._out[number]:
            del self._out[number], self._jobs[number]
        if task.ok:
            if not info.job.is_group() and task.end_s is not None and task.start_s is not None:
                self.run_times.add(info.job.name, task.end_s - task.start_s)
            if self.settings.keep_logs:
                self._keep_log(info, task)
            self.report_job_success(info)
            return
        log = self._keep_log(info, task)
        why = cause_text(task.cause or task.state, task.exit_code)
        last = "\n".join((task.stderr or task.stdout or "").splitlines()[-20:])
        self.report_job_error(
            info, msg=f"task {info.external_jobid} on {task.host or 'no host'}: {why}\n{last}\n", aux_logs=[str(log)]
        )

    def _keep_log(self, info: SubmittedJobInfo, task: Task) -> Path:
        """What a job has written, in a file of its own."""
        path = LOGS / info.job.name.replace("/", "_") / f"{info.external_jobid}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{task.stdout or ''}{task.stderr or ''}")
        return path.absolute()

    # -- the end -----------------------------------------------------------------------------------------------------

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """All that has not ended: Snakemake's list lacks those that are being looked at just now."""
        for number, tasks in list(self._out.items()):
            if tasks:
                self._jobs[number].cancel(sorted(tasks), reason="cancelled by Snakemake")

    def shutdown(self) -> None:
        super().shutdown()
        self._client.close()


def _minutes(value: Any) -> float | None:
    """`runtime` is in minutes; what is not known yet (TBD) is not a number."""
    return 60.0 * value if isinstance(value, int | float) and value > 0 else None


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"

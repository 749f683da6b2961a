"""What the JSON of each answer holds: handlers and the shapes of `windfall.api`, for the OpenAPI document."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args

from windfall.api import about, answers, asking, explained, renting, small
from windfall.api import market as of_market
from windfall.api import sites as of_sites
from windfall.bags.spec import JobSpec
from windfall.server.http import admin, health, submission, workflows
from windfall.server.http.console import sessions
from windfall.server.http.supply import doctor, fleets, machines, market, pools
from windfall.server.queries import by_pool, jobs, system, table, trying, volunteers
from windfall.server.queries.pictures import drawn
from windfall.server.queries.renting import admission, bills, decisions, money, what_if
from windfall.server.sites import api as sites

SHAPES: dict[Any, Any] = {
    # jobs
    jobs.jobs: answers.Jobs,
    jobs.job: answers.JobStatus,
    jobs.tasks: answers.Tasks,
    jobs.job_spec: JobSpec,
    jobs.parameters: small.ParametersDigest,
    jobs.render: small.Rendered,
    jobs.explain: explained.Explained,
    jobs.groups: explained.Groups,
    jobs.events: small.Events,
    jobs.learned_timeouts: explained.Timeouts,
    by_pool.pools: answers.JobPools,
    drawn.of_job: answers.Pictures,
    table.commands: small.Rows,
    table.usage: small.Rows,
    submission.submit: small.Submitted,
    submission.add_tasks: small.Total,
    submission.seal: small.Total,
    submission.forget: small.Forgotten,
    submission.cancel: answers.Cancelled,
    submission.retry: answers.Retried,
    submission.change: answers.JobStatus,
    workflows.graph: small.WorkflowGraph,
    workflows.classes: small.Classes,
    workflows.one_class: small.OneClass,
    # hosts, pools and what is rented
    jobs.hosts: answers.Hosts,
    jobs.host: answers.OneHost,
    admin.host_action: answers.OneHost,
    pools.listed: answers.Pools,
    pools.add: small.AddedPools,
    pools.remove: small.RemovedPool,
    pools.switch: answers.PoolRow | answers.RentingPool,
    pools.front: about.FrontAnswer,
    doctor.doctor: small.Examined,
    machines.poke: small.Poked,
    volunteers.volunteers: about.Volunteers,
    machines.machines: renting.Machines,
    drawn.of_machines: renting.MachinePictures,
    fleets.fleets: renting.Fleets,
    fleets.one: renting.OneFleet,
    fleets.cost: renting.FleetCost,
    **dict.fromkeys((fleets.create, fleets.change, fleets.switch, fleets.delete), renting.FleetRow),
    admission.ask: asking.Admission,
    money.cost: renting.JobCost,
    money.unfinished: asking.Unfinished,
    market.show: of_market.Learned,
    market.import_: of_market.ImportedSeries,
    bills.bills: renting.Bills,
    decisions.decisions: renting.Decisions,
    what_if.what_if: asking.WhatIf,
    trying.test: asking.TriedPolicy,
    # sites
    sites.create: of_sites.SiteRow,
    sites.change: of_sites.SiteRow,
    sites.sites: of_sites.Sites,
    sites.one_site: of_sites.OneSite,
    sites.requests: of_sites.Requests,
    **dict.fromkeys((sites.ask, sites.one_request, sites.cancel), of_sites.InstanceRow),
    # the server and its tokens
    health.healthz: about.Health,
    health.readyz: about.Readiness,
    system.system: about.System,
    sessions.sign_in: about.Session,
    sessions.session: about.Session,
    sessions.make_link: about.Link,
    admin.create_token: answers.NewToken,
    admin.rotate_token: answers.NewToken,
    admin.revoke_token: answers.Revoked,
    admin.list_tokens: small.Tokens,
}
"""Every answer that is JSON, but for the document itself."""


def parts_of(shape: Any) -> tuple[Any, ...]:
    """The shapes that an answer may have: one, or those of a union."""
    return get_args(shape) if isinstance(shape, UnionType) else (shape,)

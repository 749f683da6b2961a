"""What the server says of itself and of those who speak to it: health, times, sign-in, volunteers. Pure."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from windfall.api.answers import Picture


class Health(TypedDict):
    """`standby_of`: the server that this one follows."""

    ok: bool
    version: str
    protocol: int
    standby_of: NotRequired[str]
    snapshot_error: NotRequired[str]


class Readiness(TypedDict):
    ok: bool


class Times(TypedDict):
    """How many there were, their mean, and upper bounds of the middle and of 99 of 100; null beyond the last cell."""

    what: str
    count: int
    mean_s: float | None
    half_s: float | None
    most_s: float | None


class Queues(TypedDict):
    records_to_commit: int
    hosts_waiting_for_work: int
    requests_waiting_for_change: int
    pages_open: int


class System(TypedDict):
    """`times`: of the event loop (`loop`), of commits and of exchanges."""

    version: str
    protocol: int
    python: str
    began_s: float
    now_s: float
    standby_of: str | None
    illness: str
    snapshot_error: str
    times: dict[str, Times]
    queues: Queues
    log_records: int
    records_behind_snapshot: int
    takes_snapshot: bool
    """A snapshot is being written."""
    jobs: int
    tasks: int
    hosts: int
    machines: int
    memory_bytes: int | None
    pictures: list[Picture]


class May(TypedDict):
    jobs: bool
    hosts: bool


class Session(TypedDict):
    """Who is signed in to the console, and what that allows; an empty role: nobody."""

    role: str
    name: str
    user: str
    may: May


class Link(TypedDict):
    """A code that signs in once, within `life_s` seconds."""

    code: str
    role: str
    life_s: float


class Work(TypedDict):
    """Sums over the hosts of one volunteer, or of all."""

    hosts: int
    done: int
    credit: float


class FrontVolunteer(Work):
    """`name` is empty unless the volunteer agreed that it is shown."""

    account: int
    name: str


class Volunteer(FrontVolunteer):
    pool: str


class Volunteers(TypedDict):
    """Those with the most credit first. `fronts`: pools of volunteers."""

    volunteers: list[Volunteer]
    total: int
    sums: Work
    fronts: int


class Launcher(TypedDict):
    version: int
    file: str
    md5: str


class AccountFacts(TypedDict):
    account: int
    name: str
    shows_name: bool
    closed: bool
    while_busy: bool
    created_s: float


class AccountWithKey(AccountFacts):
    """`key`: what its clients show; `url`: what they attach to."""

    key: str
    url: str


class AccountRow(AccountFacts, Work):
    pass


class FrontShown(TypedDict):
    """The front of a pool of volunteers. `key`: the public key that launchers are signed with."""

    url: str
    project: str
    pool: str
    launcher: Launcher
    key: str
    key_is_here: bool
    validators: dict[str, str]
    accounts: list[AccountRow]


class Invitation(TypedDict):
    code: str
    uses: int
    url: str


FrontAnswer = FrontShown | AccountWithKey | AccountFacts | Invitation
"""Of `show`, `rotate` and `reload`; of `add-account` and `new-key`; of `close`; of `invite`."""

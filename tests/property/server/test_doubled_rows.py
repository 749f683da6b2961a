"""Workers, agents of a site and users that say things twice, in any order, and change what they have said.

Whatever comes, the server decides, its state does not contradict itself, and its log tells the same state.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.support.server.asgi import InProcess
from windfall.wire import frames

SEEDS, STEPS = 6, 150
CAUSES = ("done", "done", "exit", "lost", "time", "oom", "preempted", "cancelled", "outputs")
KINDS = ({}, {"quorum": 1}, {"nodes": 2}, {"max_failed_tasks": 1}, {"max_failures": 1, "max_losses": 1})


class Crowd:
    """Four workers, two agents and a user who forget what they have said."""

    def __init__(self, server: InProcess, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.held: dict[str, list[list[int]]] = {}
        self.jobs: list[int] = []
        self.reports: dict[str, int] = {}
        assert server.post("/v1/sites", {"name": "lab", "instance": {"vcpu": 1}})[0] == 201

    def doubled(self, rows: list) -> list:
        more = self.chance.choices(rows, k=self.chance.randint(1, 3)) if rows and self.chance.random() < 0.5 else []
        return self.chance.sample([*rows, *more], len(rows) + len(more))

    def step(self) -> None:
        self.chance.choices((self.submit, self.work, self.change, self.request, self.report), (1, 6, 3, 1, 2))[0]()

    def submit(self) -> None:
        self.jobs.append(self.server.submit(self.chance.choice((1, 3, 8)), **self.chance.choice(KINDS)))

    def work(self) -> None:
        chance, name = self.chance, f"h{self.chance.randint(1, 4)}"
        mine = self.held.setdefault(name, [])
        keys = self.doubled(chance.sample(mine, min(len(mine), chance.randint(0, 4))))
        said: dict = {"want": chance.choice((0, 1, 3)), "slots": chance.choice((1, 2, 4))}
        said["results"] = [[*key, chance.choice(CAUSES), 1, 0.0, 1.0, 1.0, 0, 1, 0, 0, None] for key in keys]
        self.held[name] = mine = [key for key in mine if key not in keys]
        if chance.random() < 0.2:
            said["holds"] = self.doubled(mine)
        status, answer = self.server.exchange(name, attachments=b"x" * len(keys), **said)
        if status == 200:
            mine += [task[:3] for task in answer["tasks"] if task[:3] not in mine]

    def change(self) -> None:
        if not self.jobs:
            return
        job, tasks = self.chance.choice(self.jobs), self.doubled([0, 1, 2])
        what, body = self.chance.choice(
            (("cancel", {}), ("cancel", {"tasks": tasks}), ("retry", {"cancelled": True}), ("retry", {"tasks": tasks}))
        )
        if self.chance.random() < 0.3:
            if self.server.call("DELETE", f"/v1/jobs/{job}")[0] == 200:
                self.jobs.remove(job)
        else:
            assert self.server.post(f"/v1/jobs/{job}/{what}", body)[0] in (200, 400, 404)

    def request(self) -> None:
        wish = {"resources": {"vcpu": self.chance.choice((1, 2))}, "command": ["true"]}
        assert self.server.post("/v1/site/requests", wish)[0] == 201

    def report(self) -> None:
        chance, name = self.chance, f"s{self.chance.randint(1, 2)}"
        self.reports[name] = self.reports.get(name, 0) + chance.choice((1, 1, 1, 0))
        there = [one.number for one in self.server.service.state.sites["lab"].on(name)]
        ended = [[number, chance.choice(CAUSES), 0, 0.0, 1.0, 0, 0, 0, ""] for number in there if chance.random() < 0.3]
        said = {"v": 1, "site": "lab", "host": name, "boot": "b", "n": self.reports[name]}
        said |= {"started": self.doubled([[number, 0.0] for number in there]), "ended": self.doubled(ended)}
        if self.reports[name] <= 1 or chance.random() < 0.4:
            said["capacity"] = {"vcpu": chance.choice((1, 2, 4))}
        body = frames.join(json.dumps(said).encode(), [])
        assert self.server.call("POST", "/v1/site/exchange", body)[0] in (200, 400, 409)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_said_twice_the_state_holds_and_every_job_ends(seed):
    with InProcess("memory:") as server:
        crowd = Crowd(server, seed)
        for step in range(STEPS):
            crowd.step()
            if step % 10 == 9:
                server.check()
        for job in crowd.jobs:
            server.post(f"/v1/jobs/{job}/cancel", {})
            assert server.get(f"/v1/jobs/{job}")[1]["state"] not in ("running", "waiting")
        server.check()

"""A server that is told to stop while it starts, or cannot write, ends in good order and leaves a short log."""

from __future__ import annotations

import asyncio

from windfall.core.wishes import PLANNER, PlanWish
from windfall.drivers.failures import Uncommitted
from windfall.drivers.keepers.plans import PlanKeeper
from windfall.server.embedded import Options, Server
from windfall.server.pool_admin import PoolAdmin


def test_a_server_that_is_told_to_stop_while_it_starts_ends_in_good_order(tmp_path, monkeypatch, caplog):
    begin = PoolAdmin.begin
    server = Server(Options(tmp_path / "state"))

    async def interrupted(admin):
        await begin(admin)
        server.stop()
        server.stop()  # the second time workers of pools are not waited for
        while not server._web.left.is_set():
            await asyncio.sleep(0)

    monkeypatch.setattr(PoolAdmin, "begin", interrupted)
    asyncio.run(asyncio.wait_for(server.serve(), 60))
    assert not caplog.records and not (tmp_path / "state" / "server.json").exists()


def test_plans_that_wait_until_something_can_be_written_leave_no_traceback(monkeypatch, caplog):
    class Driver:
        class state:
            class fleet:
                plans_due = ()

        on_commit: list = []  # noqa: RUF012

        def clock(self):
            return 0.0

    async def refused(fleet):
        raise Uncommitted("the disk is full")

    keeper = PlanKeeper(Driver())
    keeper.plan = refused
    wish = PlanWish(1, PLANNER, PLANNER, 0.0, retry_s=0.0)
    keeper._at_work[1] = None
    asyncio.run(keeper._plan(wish))
    assert not caplog.records and not keeper._at_work

"""Futures in event loops, while they run, and at the end of a program: on a real server and worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windfall import Client
from windfall.errors import Unreachable


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with Client(state=tmp_path_factory.mktemp("state"), slots=2) as made:
        yield made


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def square(x):
    return x * x


def wait_for_file(path):
    while not Path(path).exists():
        time.sleep(0.02)
    return "seen"


def fail():
    raise ValueError("no")


# -- while it runs ---------------------------------------------------------------------------------------------------


def test_a_future_runs_from_the_moment_a_host_has_it_until_its_result_is_here(client, tmp_path):
    with client.executor() as executor:
        busy = [executor.submit(wait_for_file, tmp_path / "go") for _ in range(2)]
        until(lambda: all(future.running() for future in busy))
        behind = executor.submit(square, 3)
        until(lambda: behind.task is not None)
        assert not behind.done()
        (tmp_path / "go").touch()
        assert [future.result(60) for future in busy] == ["seen"] * 2
        assert behind.result(60) == 9
        assert not any(future.running() for future in [*busy, behind])


def test_a_future_that_waits_behind_others_does_not_run(client, tmp_path):
    with client.executor(cpus=2) as executor:
        first = executor.submit(wait_for_file, tmp_path / "go")
        until(first.running)
        second = executor.submit(square, 3)
        until(lambda: client.job(executor.job).status()["tasks"]["total"] == 2)
        until(lambda: client.job(executor.job).status()["tasks"]["waiting"] == 1)
        assert not second.running()
        assert second.cancel()
        assert not second.running()
        (tmp_path / "go").touch()


def test_gather_takes_lists_of_lists_and_a_timeout(client, tmp_path):
    assert client.gather([client.map(square, [1, 2]), client.submit(square, 3)]) == [[1, 4], 9]
    slow = client.submit(wait_for_file, tmp_path / "never")
    with pytest.raises(TimeoutError):
        client.gather([slow], timeout=0.1)
    with pytest.raises(TimeoutError):
        list(client.as_completed([slow], timeout=0.1))
    assert slow.cancel()


# -- event loops -----------------------------------------------------------------------------------------------------


def test_futures_are_awaited_and_iterated_as_they_end(client):
    async def program():
        futures = client.map(square, range(5))
        assert await futures[2] == 4
        assert await asyncio.gather(*futures) == [0, 1, 4, 9, 16]
        assert sorted([await future async for future in client.as_completed(futures)]) == [0, 1, 4, 9, 16]
        with pytest.raises(ValueError, match="no"):
            await client.submit(fail)

    asyncio.run(program())


def test_the_loop_goes_on_while_a_job_is_awaited(client, tmp_path):
    async def program():
        job = client.submit(["sh", "-c", f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo {{}}"], ["a"])
        waiting = asyncio.ensure_future(job)
        for _ in range(5):  # turns of the loop, none of which the job may block
            await asyncio.sleep(0.01)
        assert not waiting.done()
        (tmp_path / "go").touch()
        assert (await waiting)["state"] == "done"
        assert [task.stdout async for task in job.as_completed()] == ["a\n"]

    asyncio.run(program())


def test_what_is_awaited_too_long_is_cancelled_on_its_host(client, tmp_path):
    async def program():
        future = client.submit(wait_for_file, tmp_path / "never")
        with pytest.raises(TimeoutError):
            async for _ in client.as_completed([future], timeout=0.05):
                raise AssertionError("it has ended")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.05)
        assert future.cancelled()

    asyncio.run(program())


def test_a_client_is_closed_by_async_with(tmp_path):
    async def program():
        async with Client(state=tmp_path, slots=1) as client:
            made.append(client)
            assert await client.submit(square, 4) == 16

    made = []
    asyncio.run(program())
    with pytest.raises(Unreachable):
        made[0].jobs()


# -- the end of a program --------------------------------------------------------------------------------------------


def test_calls_are_waited_for_when_a_client_is_never_closed(tmp_path):
    program = (
        "import time\n"
        "from windfall import Client\n"
        "def late(path):\n"
        "    time.sleep(1)\n"
        "    open(path, 'w').write('written')\n"
        "    return 7\n"
        "client = Client(state='state', slots=1)\n"
        "future = client.submit(late, 'late.txt')\n"
        "future.add_done_callback(lambda future: print('value', future.result()))\n"
        "print('end of the script')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end of the script\nvalue 7\n", "")
    assert (tmp_path / "late.txt").read_text() == "written"
    with Client(state=tmp_path / "state", slots=1) as client:
        assert client.job("calls").status()["state"] == "done"


def test_a_program_whose_calls_cannot_be_finished_says_so_when_it_ends(tmp_path):
    program = (
        "from windfall import Client\n"
        "client = Client(state='state', slots=1)\n"
        "def fails():\n"
        "    raise RuntimeError('the server has gone')\n"
        "client.finish_calls = fails\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "windfall: calls may be unfinished: the server has gone\n")

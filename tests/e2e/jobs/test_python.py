"""The Python API on a real server and worker: bags, calls, exceptions, an executor like those of the library."""

from __future__ import annotations

import concurrent.futures
import io
import operator
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError

import pytest

from windfall import Client, progress
from windfall.client import RemoteTraceback, TaskFailed, UnfinishedJobs
from windfall.errors import BadInput, Unreachable


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with Client(state=tmp_path_factory.mktemp("state"), slots=2) as made:
        yield made


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def is_running(pid) -> bool:
    """Not if it has ended and nobody has asked for its exit code."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def square(x):
    return x * x


def picky(x):
    if x == 3:
        raise ValueError(f"not {x}")
    return x


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__("two are needed")


def raises_what_cannot_travel():
    raise Unpicklable(1, 2)


def forks_and_returns_twice(first):
    """Returns in the forked process, too: before its parent does, or after it."""
    pid = os.fork()
    if not pid:
        time.sleep(0.0 if first else 0.5)
        if first == "raise":
            raise ValueError("in the forked process")
        return "forked"
    if first:
        os.waitpid(pid, 0)
    return pid


# -- bags ------------------------------------------------------------------------------------------------------------


def test_rows_fill_the_command_and_come_back_with_their_results(client):
    rows = [{"x": 1, "y": "a b"}, {"x": 2, "y": "c"}]
    job = client.submit("echo {x} {y}", params=rows, name="sweep")
    ended = {task.task: task for task in job.as_completed()}
    assert [ended[i].result() for i in (0, 1)] == ["1 a b\n", "2 c\n"]
    assert [ended[i].params for i in (0, 1)] == rows
    assert all(task.ok and task.exit_code == 0 and task.host for task in ended.values())
    assert job.status()["state"] == "done"


def test_results_stream_before_the_job_has_ended(client):
    job = client.submit("sleep {}", params=[0, 20])
    assert next(job.as_completed()).task == 0
    assert job.status()["tasks"]["running"] == 1
    assert job.cancel() == 1
    assert job.wait(timeout=30)["state"] == "cancelled"


def test_a_failed_command_is_an_error_to_look_at_or_to_raise(client):
    job = client.submit(["sh", "-c", "echo broken >&2; exit 3"], max_failures=1)
    (task,) = job.as_completed()
    assert not task.ok
    assert isinstance(task.error, TaskFailed)
    with pytest.raises(TaskFailed, match="exit code 3: broken"):
        task.result()


def test_a_range_needs_no_list(client):
    job = client.submit("echo {}", params=range(10, 16, 2))
    assert {task.params: task.stdout for task in job.as_completed()} == {10: "10\n", 12: "12\n", 14: "14\n"}


def test_failed_tasks_are_tried_again_with_more_memory(client, tmp_path):
    job = client.submit(["test", "-e", str(tmp_path / "there")], name="again", max_failures=1)
    assert job.wait(timeout=60)["state"] == "failed"
    (tmp_path / "there").touch()
    assert job.retry(failed=True, memory="512M") == 1
    assert job.wait(timeout=60)["state"] == "done"
    assert [(row["state"], row["attempt"]) for row in job.tasks()] == [("done", 2)]
    assert job.spec()["memory"]["bytes"] == 512 << 20
    assert [task.attempt for task in job.as_completed()] == [2]


def test_a_job_is_found_by_number_name_and_as_the_last(client):
    job = client.submit("true", name="findme")
    job.wait(timeout=60)
    assert client.job(job.id).name == client.job("findme").name == client.job("last").name == "findme"
    with pytest.raises(BadInput, match="there is no job 'nobody'"):
        client.job("nobody")


def test_waiting_has_an_end(client):
    job = client.submit("sleep 20")
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.2)
    with pytest.raises(TimeoutError):
        list(job.as_completed(timeout=0.2))
    job.cancel()


@pytest.mark.parametrize(
    ("command", "params", "settings", "words"),
    [
        (None, None, {}, "needs a command or a function"),
        ("echo {}", [], {}, "params is empty"),
        ("echo {y}", [{"x": 1}], {}, "no column 'y'"),
        ("echo {} | wc", [1], {}, "not given to a shell"),
        ("echo {}", [1], {"memroy": "2G"}, "did you mean 'memory'"),
        ("echo {}", [1], {"memory": "lots"}, "no size"),
        (square, [1], {"cpus": -1}, "cpus must be more than 0"),
        (square, [threading.Lock()], {}, "cannot be sent"),
        (square, [], {}, "params is empty"),
    ],
)
def test_a_bag_that_cannot_be_is_refused(client, command, params, settings, words):
    before = len(client.jobs())
    with pytest.raises(BadInput, match=words):
        client.submit(command, params=params, **settings)
    assert len(client.jobs()) == before


# -- calls -----------------------------------------------------------------------------------------------------------


def test_a_function_is_called_once_for_each_item(client):
    assert sorted(task.result() for task in client.submit(square, params=[1, 2, 3]).as_completed()) == [1, 4, 9]
    job = client.submit(divmod, params=[(7, 2)])
    assert [task.result() for task in job.as_completed()] == [(3, 1)]
    job = client.submit(lambda a, b=0: a - b, params=[{"a": 5, "b": 3}])
    assert [task.result() for task in job.as_completed()] == [2]


def test_an_exception_comes_back_with_the_traceback_of_the_far_side(client):
    (task,) = client.submit(picky, params=[3], max_failures=1).as_completed()
    with pytest.raises(ValueError, match="not 3") as caught:
        task.result()
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in picky" in str(caught.value.__cause__)


@pytest.mark.parametrize("first", [True, "raise"])
def test_a_call_that_forks_and_returns_twice_counts_once_and_is_told_so(client, first):
    job = client.submit(forks_and_returns_twice, params=[(first,)])
    (task,) = job.as_completed()
    assert task.result() > 0, "the value of the process that the worker started"
    assert "returned from the call as well" in task.stderr and "os._exit()" in task.stderr
    assert job.status()["tasks"]["done"] == 1
    assert client.submit(square, 3).result(timeout=60) == 9


def test_a_forked_process_that_returns_later_takes_no_call_of_its_parent(client):
    pids = [task.result() for task in client.submit(forks_and_returns_twice, params=[(False,)] * 4).as_completed()]
    squares = [x * x for x in range(8)]
    assert sorted(task.result() for task in client.submit(square, params=range(8)).as_completed()) == squares
    until(lambda: not any(is_running(pid) for pid in pids))
    assert sorted(task.result() for task in client.submit(square, params=range(8)).as_completed()) == squares


def test_a_call_sees_the_directory_of_the_caller(client):
    (task,) = client.submit(os.getcwd, params=[()]).as_completed()
    assert task.result() == os.getcwd()  # noqa: PTH109


def test_submit_of_a_function_calls_it_and_map_and_gather_go_with_it(client):
    assert client.submit(divmod, 7, 2).result(timeout=60) == (3, 1)
    assert client.submit(sorted, [2, 1], reverse=True).result(timeout=60) == [2, 1]
    futures = client.map(square, range(3))
    assert client.gather([futures, client.submit(square, 5)]) == [[0, 1, 4], 25]
    assert sorted(future.result() for future in client.as_completed(futures, timeout=60)) == [0, 1, 4]


def test_a_call_with_settings_is_refused_and_params_is_named(client):
    with pytest.raises(BadInput, match="cannot be called so") as refused:
        client.submit(square, [1, 2], max_failures=1)
    assert "params=" in refused.value.hint


def test_progress_tells_how_far_calls_and_jobs_are(client):
    told = io.StringIO()
    job = client.submit("echo {}", params=range(3), name="counted")
    progress(job, file=told)
    progress(client.map(square, range(4)), file=told)
    assert f"job {job.id} 'counted': 3 of 3 ended (100%)" in told.getvalue()
    assert "calls: 4 of 4 ended (100%)" in told.getvalue()


def test_what_is_printed_says_how_it_stands(client):
    job = client.submit("echo {}", params=range(3), name="shown")
    assert repr(job) == f"<Job {job.id} 'shown': 3 tasks submitted>"
    (first, *_) = job.results()
    assert repr(job) == f"<Job {job.id} 'shown': done, 3 of 3 done>"
    assert repr(first).startswith("<Task 0: done in ")
    future = client.submit(square, 2)
    future.result(timeout=60)
    assert repr(future) == f"<Future of task {future.task}: done>"
    assert "in this process" in repr(client)


def test_results_straight_after_submit_wait_for_the_job(client):
    job = client.submit("sh -c 'sleep 0.3; echo late'")
    assert [task.stdout for task in job.results()] == ["late\n"]


def test_results_of_a_paused_job_are_refused_instead_of_being_empty(client):
    job = client.submit("sleep 30", name="held")
    job.change(paused=True)
    with pytest.raises(BadInput, match="is paused"):
        job.results()
    assert list(job.results(wait=False)) == []
    job.cancel()


def test_a_wrong_address_is_noticed_at_once():
    with pytest.raises(Unreachable, match="no server answers"):
        Client("http://127.0.0.1:9", "token")


# -- the executor ----------------------------------------------------------------------------------------------------


def test_it_is_an_executor(client):
    with client.executor() as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        future = executor.submit(square, 12)
        assert isinstance(future, concurrent.futures.Future)
        assert future.result(timeout=60) == 144
        assert future.done()


def test_map_keeps_the_order_whatever_the_chunks(client):
    with client.executor() as executor:
        assert list(executor.map(square, range(500))) == [n * n for n in range(500)]
        assert list(executor.map(operator.add, range(100), range(100), chunksize=7)) == [2 * n for n in range(100)]
        with pytest.raises(ValueError, match="chunksize"):
            executor.map(square, [1], chunksize=0)


def test_an_exception_is_the_futures(client):
    with client.executor() as executor:
        futures = [executor.submit(picky, n) for n in range(5)]
        errors = {n: future.exception(timeout=60) for n, future in enumerate(futures)}
    assert {n: type(error) for n, error in errors.items() if error} == {3: ValueError}
    with pytest.raises(ValueError, match="not 3"):
        futures[3].result()


def test_an_exception_that_cannot_travel_arrives_as_text(client):
    with client.executor() as executor, pytest.raises(RuntimeError, match="two are needed"):
        executor.submit(raises_what_cannot_travel).result(timeout=60)


def test_as_completed_and_wait_of_the_standard_library_work(client):
    with client.executor() as executor:
        futures = {executor.submit(time.sleep, seconds): seconds for seconds in (0.6, 0.0)}
        order = [futures[future] for future in concurrent.futures.as_completed(futures, timeout=60)]
        assert order == [0.0, 0.6]
        done, pending = concurrent.futures.wait([executor.submit(square, 1)], timeout=60)
        assert (len(done), len(pending)) == (1, 0)


def test_callbacks_are_called(client):
    heard = []
    with client.executor() as executor:
        executor.submit(square, 5).add_done_callback(lambda future: heard.append(future.result()))
    assert heard == [25]


def test_a_cancelled_call_is_cancelled_where_it_runs(client):
    with client.executor() as executor:
        running = [executor.submit(time.sleep, 60) for _ in range(2)]
        waiting = executor.submit(square, 1)
        assert waiting.cancel()
        assert waiting.cancelled()
        with pytest.raises(CancelledError):
            waiting.result()
        until(lambda: client.job(executor.job).status()["tasks"]["running"] == 2)
        assert all(future.cancel() for future in running)
        done, _ = concurrent.futures.wait([*running, waiting], timeout=60)
        assert len(done) == 3
        assert executor.submit(square, 3).result(timeout=60) == 9
    status = client.job(executor.job).wait(timeout=60)
    assert status["tasks"]["done"] == 1


def test_a_call_that_somebody_else_cancels_is_cancelled_here(client):
    with client.executor() as executor:
        future = executor.submit(time.sleep, 60)
        until(lambda: client.job(executor.job).status()["tasks"]["total"] == 1)
        assert client.job(executor.job).cancel() == 1
        with pytest.raises(CancelledError):
            future.result(timeout=60)


def test_arguments_larger_together_than_a_request_may_be_are_sent_in_several(client):
    with client.executor() as executor:
        assert list(executor.map(len, [bytes(8 << 20)] * 9)) == [8 << 20] * 9
        with pytest.raises(BadInput, match="the limit is"):
            executor.submit(len, bytes(64 << 20))


def test_shutdown_waits_for_what_was_submitted_and_takes_no_more(client):
    executor = client.executor()
    future = executor.submit(time.sleep, 0.3)
    executor.shutdown()
    assert future.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    assert client.job(executor.job).status()["state"] == "done"


def test_shutdown_can_cancel_what_has_not_ended(client):
    executor = client.executor()
    futures = [executor.submit(time.sleep, 60) for _ in range(6)]
    executor.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    tasks = client.job(executor.job).wait(timeout=60)["tasks"]
    assert tasks["cancelled"] == tasks["total"], "those that were not sent yet never became tasks"


def test_shutdown_without_waiting_still_brings_the_results(client):
    executor = client.executor()
    future = executor.submit(square, 4)
    executor.shutdown(wait=False)
    assert future.result(timeout=60) == 16


def test_an_executor_that_was_never_used_ends(client):
    with client.executor() as executor:
        pass
    assert client.job(executor.job).wait(timeout=60)["state"] == "done"


def test_what_cannot_be_sent_fails_where_it_is_submitted(client):
    with client.executor() as executor, pytest.raises(BadInput, match="cannot be sent"):
        executor.submit(square, threading.Lock())


def test_many_threads_may_submit_at_once(client):
    with client.executor() as executor:
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            lists = list(threads.map(lambda k: [executor.submit(square, 100 * k + n) for n in range(50)], range(8)))
        found = [future.result(timeout=60) for futures in lists for future in futures]
    assert found == [n * n for k in range(8) for n in range(100 * k, 100 * k + 50)]


def test_a_client_that_is_closed_leaves_nobody_waiting(tmp_path):
    client = Client(state=tmp_path, slots=1)
    executor = client.executor()
    future = executor.submit(time.sleep, 60)
    client.close()
    with pytest.raises(Unreachable, match="closed"):
        future.result(timeout=60)


def test_what_was_submitted_is_there_for_the_next_client(tmp_path):
    with Client(state=tmp_path, slots=1) as client:
        client.submit("echo {}", params=["kept"], name="first").wait(timeout=60)
    with Client(state=tmp_path, slots=1) as client:
        (task,) = client.job("first").results()
        assert (task.stdout, client.job("first").params(0)) == ("kept\n", "kept")


def test_unfinished_jobs_of_an_earlier_program_are_paused_and_named(tmp_path):
    with Client(state=tmp_path, slots=1) as client:
        client.submit("sleep {}", params=[60, 60], name="old")
    with pytest.warns(UnfinishedJobs, match=r"job 1 'old' .* client.job\(1\).resume\(\)"):
        client = Client(state=tmp_path, slots=1)
    with client:
        assert [task.stdout for task in client.submit("echo new").results(timeout=60)] == ["new\n"]
        assert client.job("old").status()["state"] == "paused"
        assert client.job("old").resume()["state"] == "running"
        client.job("old").cancel()


def test_the_job_of_an_executor_ends_with_a_program_that_closes_nothing(tmp_path):
    program = "from windfall import Client; print(Client(state='state', slots=1).executor().submit(abs, -3).result())"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")
    with Client(state=tmp_path / "state", slots=1) as client:
        assert client.job("calls").status()["state"] == "done"


def test_the_job_of_an_executor_that_was_not_shut_down_ends_with_its_client(tmp_path):
    client = Client(state=tmp_path, slots=1)
    assert client.executor().submit(square, 2).result(timeout=60) == 4
    client.close()
    with Client(state=tmp_path, slots=1) as client:
        assert client.job("calls").status()["state"] == "done"

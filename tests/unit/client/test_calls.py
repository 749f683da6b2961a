"""Python calls as payloads, and tasks that have ended as values and errors."""

from __future__ import annotations

import functools
import hashlib
import operator
import pickle
import threading
import traceback

import pytest

from windfall.client.results import Task, TaskFailed, cause_text
from windfall.client.submitting.calls import BLOB_BYTES, Calls, RemoteTraceback, raised
from windfall.errors import BadInput


@pytest.fixture
def blobs():
    return {}


@pytest.fixture
def calls(blobs):
    return Calls(blobs.__setitem__)


def made(payload):
    """What the far side does with a payload."""
    function, args, kwargs = pickle.loads(payload)
    return pickle.loads(function)(*args, **kwargs)


def test_a_call_travels_with_its_arguments(calls):
    assert made(calls.payload(operator.sub, (7, 2), {})) == 5
    assert made(calls.payload(sorted, ([2, 1],), {"reverse": True})) == [2, 1]


def test_what_can_be_imported_travels_as_its_name(calls):
    function, _, _ = pickle.loads(calls.payload(operator.sub, (1, 2), {}))
    assert len(function) < 60


def test_a_closure_travels_by_value(calls):
    offset = 10
    assert made(calls.payload(lambda x: x + offset, (1,), {})) == 11


def test_a_function_is_pickled_once(calls):
    counted = []

    class Counting:
        def __reduce__(self):
            counted.append(1)
            return (int, ())

    function = functools.partial(max, Counting())
    for _ in range(5):
        calls.payload(function, (), {})
    assert len(counted) == 1


class Adder:
    def __init__(self):
        self.n = 0

    def __call__(self, x):
        return x + self.n


def test_an_object_that_changes_is_sent_as_it_is_now(calls):
    adder = Adder()
    first = calls.payload(adder, (1,), {})
    adder.n = 10
    assert (made(first), made(calls.payload(adder, (1,), {}))) == (1, 11)


def test_equal_functions_with_different_closures_are_not_confused(calls):
    adders = [lambda x, n=n: x + n for n in range(300)]
    assert [made(calls.payload(add, (0,), {})) for add in adders] == list(range(300))


def test_a_large_function_is_sent_once_as_a_blob(calls, blobs):
    ballast = bytes(range(256)) * (BLOB_BYTES // 128)

    def large():
        return len(ballast)

    reference, _, _ = pickle.loads(calls.payload(large, (), {}))
    calls.payload(large, (), {})
    assert list(blobs) == [reference] == [hashlib.sha256(blobs[reference]).hexdigest()]
    assert pickle.loads(blobs[reference])() == len(ballast)


def test_what_cannot_be_sent_is_said_where_it_is_submitted(calls):
    with pytest.raises(BadInput, match="an argument of the call cannot be sent"):
        calls.payload(len, (threading.Lock(),), {})
    with pytest.raises(BadInput, match="cannot be called"):
        calls.payload(17, (), {})


def test_the_remote_traceback_is_the_cause_of_the_exception():
    error = raised((False, ValueError("no"), "Traceback ...\nValueError: no"))
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "Traceback ..." in "".join(traceback.format_exception(error))


def row(state="done", exit_code=0, cause="done", more=None):
    return [3, state, 1, exit_code, cause, "host-1", 10.0, 12.5, 0, 0, 0, more]


def test_the_result_of_a_command_is_what_it_wrote():
    task = Task(row(), b"42\n", b"", b"")
    assert (task.ok, task.result(), task.error, task.task, task.host) == (True, "42\n", None, 3, "host-1")


def test_the_result_of_a_call_is_its_value():
    assert Task(row(), b"", b"", pickle.dumps((True, {"a": 1}))).result() == {"a": 1}


def test_a_failed_command_says_why_with_its_last_line():
    task = Task(row("failed", 3, "exit"), b"", b"warming up\nsingular matrix\n", b"")
    with pytest.raises(TaskFailed, match="task 3: exit code 3: singular matrix") as caught:
        task.result()
    assert (caught.value.task, caught.value.cause, caught.value.status) == (3, "exit", 3)


def test_output_that_is_not_utf8_is_shown_all_the_same():
    assert Task(row(), b"\xff!", b"", b"").stdout == "�!"


@pytest.mark.parametrize(
    ("cause", "code", "text"),
    [
        ("exit", 3, "exit code 3"),
        ("signal", 11, "killed by SIGSEGV"),
        ("signal", 139, "killed by SIGSEGV"),
        ("signal", 200, "killed by signal 200"),
        ("oom", None, "out of memory"),
        ("lost", None, "host vanished"),
        ("something-new", None, "something-new"),
    ],
)
def test_causes_are_worded_for_people(cause, code, text):
    assert cause_text(cause, code) == text

"""The back end of joblib with the real joblib and scikit-learn, on a real server and worker."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import joblib
import pytest
from joblib import Parallel, delayed, parallel_config

import windfall.joblib
from windfall import Client
from windfall.errors import BadInput


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with Client(state=tmp_path_factory.mktemp("state"), slots=2) as made:
        yield made


@pytest.fixture
def backend(client):
    with parallel_config(backend="windfall", client=client):
        yield


def square(x):
    return x * x, os.getpid()


def picky(x):
    if x == 3:
        raise ValueError(f"not {x}")
    return x


def nested(x):
    inner = Parallel()(delayed(pow)(x, power) for power in range(3))
    return type(joblib.parallel.get_active_backend()[0]).__name__, inner


def running_at_once(folder, x):
    """How many calls like this one run at this moment, by the files that they hold."""
    (folder / f"on-{x}").touch()
    time.sleep(0.05)
    found = len(list(folder.glob("on-*")))
    (folder / f"on-{x}").unlink()
    return found


def test_calls_run_elsewhere_and_come_back_in_order(backend, client):
    found = Parallel()(delayed(square)(i) for i in range(100))
    assert [value for value, _ in found] == [i * i for i in range(100)]
    assert os.getpid() not in {pid for _, pid in found}
    # Short calls travel together, as one job.
    job = client.job("last")
    assert job.name == "joblib"
    assert job.wait(60)["tasks"]["done"] < 100


def test_grid_search_gives_what_it_gives_here(backend):
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    x, y = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1, 10], "gamma": [0.01, 0.1, 1]}
    there = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    with parallel_config(backend="sequential"):
        here = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    assert there.best_params_ == here.best_params_
    for key in ("mean_test_score", "std_test_score", "rank_test_score"):
        assert list(there.cv_results_[key]) == list(here.cv_results_[key])


def test_an_exception_comes_back_and_cancels_the_rest(backend, client):
    with pytest.raises(ValueError, match="not 3") as raised:
        Parallel(batch_size=1)(delayed(picky if i == 1 else time.sleep)(3 if i == 1 else 300) for i in range(8))
    assert "picky" in str(raised.value.__cause__)
    assert client.job("last").wait(60)["state"] in ("failed", "cancelled")
    # It works again.
    assert Parallel()(delayed(picky)(i) for i in range(3)) == [0, 1, 2]


def test_timeouts_generators_and_contexts_of_joblib_work(backend):
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.3)(delayed(time.sleep)(300) for _ in range(2))
    assert sorted(Parallel(return_as="generator_unordered")(delayed(picky)(i) for i in range(3))) == [0, 1, 2]
    with Parallel(n_jobs=2) as parallel:
        assert parallel(delayed(picky)(i) for i in range(3)) == [0, 1, 2]
        assert parallel(delayed(picky)(i) for i in range(4, 7)) == [4, 5, 6]


def test_n_jobs_is_how_many_run_at_once(backend, tmp_path):
    found = Parallel(n_jobs=1, batch_size=1, pre_dispatch="all")(
        delayed(running_at_once)(tmp_path, i) for i in range(6)
    )
    assert found == [1] * 6
    with pytest.raises(ValueError, match="no meaning"):
        Parallel(n_jobs=0)(delayed(picky)(i) for i in range(3))


def test_parallel_inside_of_a_call_stays_on_its_host(backend, client):
    assert Parallel()(delayed(nested)(x) for x in (2, 3)) == [
        ("SequentialBackend", [1, 2, 4]),
        ("SequentialBackend", [1, 3, 9]),
    ]
    with parallel_config(backend="windfall", client=client, cpus=2):
        assert Parallel(n_jobs=2)(delayed(nested)(x) for x in (2,)) == [("ThreadingBackend", [1, 2, 4])]


def test_several_threads_may_use_one_back_end(client):
    shared = windfall.joblib.WindfallBackend(client=client)
    found = {}

    def use(start):
        with parallel_config(backend=shared):
            found[start] = Parallel()(delayed(picky)(i) for i in range(start, start + 20))

    threads = [threading.Thread(target=use, args=(start,)) for start in (10, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {start: list(range(start, start + 20)) for start in (10, 100)}


def test_wrong_settings_are_refused_before_anything_runs(client):
    with parallel_config(backend="windfall", client=client, memry="1G"), pytest.raises(BadInput, match="memry"):
        Parallel()(delayed(picky)(i) for i in range(3))
    with pytest.raises(BadInput, match="workers=0"):
        windfall.joblib.WindfallBackend(workers=0)


def test_a_script_needs_no_client_and_functions_of_its_own_travel(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import joblib, windfall.joblib\n"
        "def double(x): return 2 * x\n"
        "with joblib.parallel_backend('windfall'):\n"
        "    print(joblib.Parallel()(joblib.delayed(double)(x) for x in range(3)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[0, 2, 4]\n", done.stderr

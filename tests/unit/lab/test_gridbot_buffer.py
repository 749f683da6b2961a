"""GridBot with and without its scalability optimisation: the same answers, at the price of every job in the buffer."""

from __future__ import annotations

from windfall.core.engine import Engine
from windfall.core.state.jobs.columns import HELD, WAITING
from windfall.lab.gridbot import worlds
from windfall.lab.gridbot.buffer import AskedForEachJob, answers, busiest, join
from windfall.lab.gridbot.finding import Means
from windfall.lab.gridbot.requests import requests
from windfall.policy import compile_policies

HOSTS, ROUNDS, EXPRESSIONS = 4, 3, 2


def test_a_policy_that_is_asked_for_each_job_answers_as_one_that_is_asked_for_the_bag():
    rates, state = busiest(worlds.optimisation_run(True, 0.02))
    assert rates.requests_s >= rates.jobs_s > 0, "a host gets at most one job for each request here"
    join(state, HOSTS)
    asked = list[AskedForEachJob]()

    def compiled(texts):
        asked.append(AskedForEachJob(texts))
        return asked[-1]

    assert answers(state, Engine(compile_policies), HOSTS)[1] == answers(state, Engine(compiled), HOSTS)[1]
    left = state.bags[1].counts[WAITING] + state.bags[1].counts[HELD]
    (one,) = asked
    assert one.evaluations == EXPRESSIONS * HOSTS * ROUNDS * min(worlds.BUFFER, left) > 0


def test_hosts_that_ask_when_they_have_none_left_get_as_many_jobs_a_request_as_the_papers():
    found = requests(Means(0.05, 1))
    assert [holds for _, holds in found.claims] == [True, True]
    a_request = {case: rates["jobs_s"] / rates["requests_s"] for case, rates in found.data.items()}
    assert a_request["5/batch"] > 2 * a_request["5/each"], "short jobs tell the two ways apart"

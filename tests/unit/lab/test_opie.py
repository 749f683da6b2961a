"""The laboratory and the bench run on small inputs, and their sums are right."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from windfall.cli import cli
from windfall.lab import data
from windfall.lab.opie.command import WAYS, tables
from windfall.lab.opie.pods import FOLDER, Pod, Week, busiest_week, pods_of_week, read_pods, read_site
from windfall.lab.opie.world import saturated_site
from windfall.placement import Host, Instance, Period, Request, Scheduler
from windfall.placement.baseline import PlainScheduler


def test_the_lab_shows_all_four_tables_as_in_the_paper():
    assert [row["table"] for row in tables() if row["same"]] == [3, 4, 5, 6]


@pytest.mark.parametrize("mode", ["one-pass", "retry"])
def test_the_papers_schedulers_evict_the_cheapest_set_of_the_host_they_choose(mode):
    rng = np.random.default_rng(4)
    for seed in range(20):
        site = saturated_site(6, np.random.default_rng(seed))
        request = Request(False, {"vcpu": float(rng.integers(1, 6)), "ram_mb": 2000})
        plain = PlainScheduler(site, mode).decide(request)
        one_host = [Host(site.hosts[h].name, site.hosts[h].capacity, site.hosts[h].instances) for h in range(6)]
        only = [host for host in one_host if host.name == plain.host]
        best = Scheduler(type(site)(only), Period()).decide(request)
        assert (plain.cost, len(plain.victims)) == (best.cost, len(best.victims))


def test_the_default_scheduler_knows_no_eviction():
    site = saturated_site(3, np.random.default_rng(0))
    assert PlainScheduler(site, "default").decide(Request(False, {"vcpu": 1})).host is None
    site.remove(next(iter(site.instances)))
    assert PlainScheduler(site, "default").decide(Request(False, {"vcpu": 1})).host is not None


@pytest.mark.parametrize("way", WAYS)
def test_a_week_loses_no_pod_and_bills_each_once(way):
    rng = np.random.default_rng(1)
    pods = [
        Pod(
            f"p{i}",
            bool(i % 3),
            float(rng.integers(0, 200_000)),
            float(rng.integers(60, 20_000)),
            {"vcpu": 2, "ram_mb": 1, "gpu": 0},
        )
        for i in range(120)
    ]
    hosts = [Host("a", {"vcpu": 8, "ram_mb": 99, "gpu": 1}), Host("b", {"vcpu": 4, "ram_mb": 99, "gpu": 0})]
    cost, weighers = WAYS[way]
    week = Week(hosts, way, cost, weighers, seed=0)
    outcome = week.run(sorted(pods, key=lambda pod: pod.created_s), 0.0)
    waiting = [pod.name for queue in week.waiting.values() for pod in queue]
    assert len(waiting) == len(set(waiting))
    assert not set(waiting) & set(week.running)
    preemptible = sum(pod.preemptible for pod in pods)
    left = sum(pod.preemptible for pod, *_ in week.running.values()) + len(week.waiting[True])
    assert outcome.preemptible_done + left == preemptible
    assert outcome.normal_placed + len(week.waiting[False]) == len(pods) - preemptible
    assert 0 < outcome.cpu_used <= 1
    assert outcome.evictions > 0
    assert outcome.work_lost_vcpu_h > 0


def test_the_real_week_is_the_busiest_and_its_site_holds_the_normal_peak():
    if data.root() is None:
        pytest.skip("the trace data is not here; set WINDFALL_DATA")
    folder = data.find(FOLDER)
    pods = read_pods(folder / "openb_pod_list_default.open.csv")
    start_s = busiest_week(pods)
    here = pods_of_week(pods, start_s, 1)
    hosts = read_site(folder / "openb_node_list_all_node.csv", here, start_s)
    outcome = Week(hosts, "period", Period(), {"cheapest": 1.0}, 0).run(here, start_s)
    assert outcome.normal_placed > 700
    assert outcome.evictions > 0


def test_the_bench_reports_rates_with_their_peers_and_goals():
    result = CliRunner().invoke(cli, ["bench", "place", "--hosts", "8", "--placements", "5", "--json"])
    report = json.loads(result.output)
    assert {(rate["requests"], rate["scheduler"]) for rate in report["rates"]} == {
        ("normal, evicting", "windfall"),
        ("normal, evicting", "one-pass"),
        ("normal, evicting", "retry"),
        ("preemptible", "windfall"),
        ("preemptible", "one-pass"),
        ("preemptible", "retry"),
        ("preemptible", "default"),
    }
    assert all(rate["evicted"] > 0 for rate in report["rates"] if rate["requests"] == "normal, evicting")
    assert [goal["goal_per_s"] for goal in report["goals"]] == [2000, 5000]


def test_a_site_refuses_an_instance_that_does_not_fit_or_runs_already():
    site = saturated_site(2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="no room"):
        site.boot("host-000000", Instance("x", True, 0, {"vcpu": 1}))
    taken = next(iter(site.instances))
    with pytest.raises(ValueError, match="runs already"):
        site.boot("host-000001", Instance(taken, True, 0, {"vcpu": 0}))

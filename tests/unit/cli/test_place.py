"""`windfall place`: the JSON contract, refusals with exit code 2, explanations."""

import json

import pytest
from click.testing import CliRunner

from windfall.cli import cli
from windfall.errors import BadInput
from windfall.lab.opie.tables import TABLES


def as_json(hosts):
    return [
        {
            "name": host.name,
            "capacity": dict(host.capacity),
            "instances": [
                {"id": i.id, "preemptible": i.preemptible, "run_s": i.run_s, "resources": dict(i.resources)}
                for i in host.instances
            ],
        }
        for host in hosts
    ]


@pytest.fixture
def run(tmp_path):
    def run(verb, hosts, request, *options):
        (tmp_path / "hosts.json").write_text(json.dumps(hosts))
        (tmp_path / "request.json").write_text(json.dumps(request))
        files = ["--hosts", str(tmp_path / "hosts.json"), "--request", str(tmp_path / "request.json")]
        result = CliRunner().invoke(cli, ["place", verb, *files, *options])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return run


@pytest.mark.parametrize("number", TABLES)
def test_decide_gives_the_papers_answer_in_exactly_the_contracts_shape(run, number):
    table = TABLES[number]
    request = {"preemptible": False, "resources": dict(table.request.resources)}
    answer = json.loads(run("decide", as_json(table.hosts), request, "--json"))
    assert list(answer) == ["host", "victims", "cost", "why"]
    assert answer["host"] == table.host
    assert answer["victims"] == list(table.victims)
    assert answer["cost"] == table.cost_min * 60
    assert answer["why"]


def test_nothing_that_fits_gives_a_null_host_and_the_nearest_miss(run):
    table = TABLES[5]
    answer = json.loads(run("decide", as_json(table.hosts), {"preemptible": False, "resources": {"vcpu": 9}}, "--json"))
    assert list(answer) == ["host", "why"]
    assert answer["host"] is None
    assert "nearest miss: host-A lacks 1 vcpu" in answer["why"]


def test_no_hosts_is_an_answer_and_not_an_error(run):
    answer = json.loads(run("decide", [], {"preemptible": False, "resources": {"vcpu": 9}}, "--json"))
    assert answer == {"host": None, "why": ["there are no hosts"]}


def test_a_preemptible_request_never_evicts(run):
    table = TABLES[3]
    answer = json.loads(run("decide", as_json(table.hosts), {"preemptible": True, "resources": {"vcpu": 1}}, "--json"))
    assert answer["host"] is None


@pytest.mark.parametrize("cost", ["count", "revenue", "work", "groups"])
def test_every_cost_gives_a_sufficient_set(run, cost):
    table = TABLES[5]
    request = {"preemptible": False, "resources": dict(table.request.resources)}
    answer = json.loads(run("decide", as_json(table.hosts), request, "--cost", cost, "--json"))
    sizes = {i.id: i.resources["vcpu"] for host in table.hosts for i in host.instances}
    free = {host.name: 8 - sum(i.resources["vcpu"] for i in host.instances) for host in table.hosts}
    assert free[answer["host"]] + sum(sizes[victim] for victim in answer["victims"]) >= 4


def test_a_search_that_met_its_limit_says_that_a_cheaper_set_may_exist(run):
    instances = [
        {"id": f"p{i}", "preemptible": True, "run_s": 0, "group": f"g{i % 7}", "resources": {"vcpu": 1}}
        for i in range(20)
    ]
    hosts = [{"name": "a", "capacity": {"vcpu": 20}, "instances": instances}]
    request = {"preemptible": False, "resources": {"vcpu": 9}}
    hasty = json.loads(run("decide", hosts, request, "--cost", "groups", "--search-limit", "5", "--json"))
    assert "not additive" in hasty["why"][0]
    thorough = json.loads(run("decide", hosts, request, "--cost", "groups", "--search-limit", "10000000", "--json"))
    assert thorough["cost"] == 3  # six groups have three members each
    assert "not additive" not in thorough["why"][0]


def test_filters_and_expressions_refuse_hosts_and_explain_names_them(run):
    hosts = [
        {"name": "plain", "capacity": {"vcpu": 4}, "instances": []},
        {"name": "tagged", "capacity": {"vcpu": 4}, "instances": [], "tags": ["ssd"], "aggregates": ["z1"]},
        {"name": "small", "capacity": {"vcpu": 1}, "instances": [], "tags": ["ssd"], "aggregates": ["z1"]},
        {
            "name": "good",
            "capacity": {"vcpu": 4},
            "instances": [{"id": "db", "preemptible": False, "run_s": 1, "group": "red", "resources": {"vcpu": 1}}],
            "tags": ["ssd"],
            "aggregates": ["z2"],
            "attributes": {"Rack": 7},
        },
    ]
    request = {
        "preemptible": False,
        "resources": {"vcpu": 2},
        "tags": ["ssd"],
        "aggregates": ["z1", "z2"],
        "expression": "Host.Rack == 7 && Host.Free.vcpu >= 3",
    }
    answer = json.loads(run("explain", hosts, request, "--json"))
    assert answer["host"] == "good"
    refused = {row["host"]: row["refused_by"] for row in answer["hosts"]}
    assert refused == {"plain": "aggregates", "tagged": "expression", "small": "resources", "good": None}
    rows = {row["host"]: row for row in answer["hosts"]}
    assert "is undefined" in rows["tagged"]["reason"]
    assert rows["good"]["weights"]["cheapest"]["multiplier"] == 1.0
    near = {"preemptible": False, "resources": {"vcpu": 1}, "affinity": ["red"]}
    assert json.loads(run("decide", hosts, near, "--json"))["host"] == "good"
    far = {
        "preemptible": False,
        "resources": {"vcpu": 1},
        "anti_affinity": ["red"],
        "tags": ["ssd"],
        "aggregates": ["z2"],
    }
    assert json.loads(run("decide", hosts, far, "--json"))["host"] is None


def test_what_a_request_wants_to_be_close_to_is_not_evicted_for_it(run):
    instances = [
        {"id": "cheap", "preemptible": True, "run_s": 3600, "resources": {"vcpu": 2}},
        {"id": "dear", "preemptible": True, "run_s": 3599, "resources": {"vcpu": 2}},
    ]
    hosts = [{"name": "a", "capacity": {"vcpu": 4}, "instances": instances}]
    request = {"preemptible": False, "resources": {"vcpu": 2}}
    assert json.loads(run("decide", hosts, request, "--json"))["victims"] == ["cheap"]
    close = request | {"affinity": ["cheap"]}
    assert json.loads(run("decide", hosts, close, "--json"))["victims"] == ["dear"]
    assert json.loads(run("decide", hosts, close | {"resources": {"vcpu": 3}}, "--json"))["host"] is None


def test_weighers_combine_with_their_multipliers(run):
    table = TABLES[5]
    request = {"preemptible": False, "resources": dict(table.request.resources)}
    answer = json.loads(
        run("explain", as_json(table.hosts), request, "--weigher", "cheapest=2", "--weigher", "pack", "--json")
    )
    for row in answer["hosts"]:
        if row["refused_by"] is None:
            total = sum(w["normalised"] * w["multiplier"] for w in row["weights"].values())
            assert row["weight"] == pytest.approx(total)


@pytest.mark.parametrize(
    ("request_doc", "options", "says"),
    [
        ({"preemptible": False, "resources": {"vcpu": -1}}, [], r"request\.resources\.vcpu: must not be negative"),
        (
            {"preemptible": False, "resources": {"vcpu": 1}, "expression": "Host.x >"},
            [],
            r"request\.expression: column",
        ),
        ({"preemptible": False, "resources": {"vcpu": 1}, "expression": "time() > 1"}, [], r"time\(\) is refused"),
        ({"preemptible": False, "resources": {"vcpu": 1}}, ["--weigher", "nosuch"], "no weigher 'nosuch'"),
        ({"preemptible": False, "resources": {"vcpu": 1}}, ["--weigher", "pack=nan"], "multiplier must be a number"),
        ({"preemptible": False, "resources": {"vcpu": 1}}, ["--weigher", "pack", "--weigher", "pack=2"], "given twice"),
    ],
)
def test_bad_input_is_refused_before_anything_is_decided(run, request_doc, options, says):
    with pytest.raises(BadInput, match=says) as refused:
        run("decide", as_json(TABLES[3].hosts), request_doc, *options)
    assert refused.value.exit_code == 2


def test_a_missing_file_is_named():
    with pytest.raises(BadInput, match=r"nosuch\.json: No such file"):
        CliRunner().invoke(cli, ["place", "decide", "--hosts", "nosuch.json", "--request", "x"], catch_exceptions=False)


def test_a_large_site_gets_the_answer_without_the_weights_of_all(run):
    hosts = [
        {
            "name": f"h{h}",
            "capacity": {"vcpu": 2},
            "instances": [{"id": f"p{h}", "preemptible": True, "run_s": 7 + h * 5, "resources": {"vcpu": 2}}],
        }
        for h in range(300)
    ]
    answer = json.loads(run("decide", hosts, {"preemptible": False, "resources": {"vcpu": 1}}, "--json"))
    assert (answer["host"], answer["victims"], answer["cost"]) == ("h0", ["p0"], 7)
    assert "ranked 300 hosts" in answer["why"][1]


def test_people_get_the_same_answer_in_words(run):
    table = TABLES[6]
    request = {"preemptible": False, "resources": dict(table.request.resources)}
    text = run("decide", as_json(table.hosts), request)
    assert text.startswith("host: host-B\nevict: BP3\n")
    table_text = run("explain", as_json(table.hosts), request)
    assert "host-B <-" in table_text
    assert "resources: needs 2 vcpu, 1 free" in table_text


def test_consolidate_market_and_headroom_answer_from_files(tmp_path):
    def instance(identity, **more):
        return {"id": identity, "preemptible": True, "run_s": 3000, "resources": {"vcpu": 2}, **more}

    hosts = [
        {"name": "a", "capacity": {"vcpu": 4}, "instances": [instance("p1", bid_usd_per_h=0.2)]},
        {"name": "b", "capacity": {"vcpu": 4}, "instances": [instance("p2", bid_usd_per_h=0.1)]},
    ]
    bids = [{"id": f"w{i}", "resources": {"vcpu": 2}, "bid_usd_per_h": 0.3} for i in range(3)]
    for name, doc in (("hosts", hosts), ("bids", bids), ("request", {"preemptible": False, "resources": {"vcpu": 4}})):
        (tmp_path / f"{name}.json").write_text(json.dumps(doc))

    def run(*words):
        arguments = [str(tmp_path / word) if word.endswith(".json") else word for word in words]
        return json.loads(CliRunner().invoke(cli, ["place", *arguments, "--json"], catch_exceptions=False).output)

    plan = run("consolidate", "--hosts", "hosts.json")
    assert plan == {"moves": [{"instance": "p1", "source": "a", "target": "b"}], "emptied": ["a"]}
    cleared = run("market", "--hosts", "hosts.json", "--bids", "bids.json")
    assert cleared["price_usd_per_h"] == 0.05  # 0.1 USD/h for two vCPUs was the first to find no room
    assert cleared["terminated"] == ["p2"]
    assert [start["id"] for start in cleared["admitted"]] == ["w0", "w1", "w2"]
    ends = run("headroom", "--hosts", "hosts.json", "--request", "request.json", "--within", "900")
    assert ends == {"possible": True, "terminate": [{"instance": "p1", "host": "a", "at_s": 600.0}]}
    bids[1].pop("bid_usd_per_h")
    (tmp_path / "bids.json").write_text(json.dumps(bids))
    with pytest.raises(BadInput, match=r"bids\[1\]\.bid_usd_per_h: missing"):
        run("market", "--hosts", "hosts.json", "--bids", "bids.json")
    bids[1] = dict(bids[0])
    (tmp_path / "bids.json").write_text(json.dumps(bids))
    with pytest.raises(BadInput, match=r"bids\[1\]\.id: duplicate instance id 'w0'"):
        run("market", "--hosts", "hosts.json", "--bids", "bids.json")

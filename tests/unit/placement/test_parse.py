"""Whatever is malformed is refused, with the path to the field."""

import copy
import json

import pytest

from windfall.errors import BadInput
from windfall.placement import parse

HOSTS = [
    {
        "name": "a",
        "capacity": {"vcpu": 8, "ram_mb": 16000, "disk_gb": 140},
        "instances": [
            {"id": "n1", "preemptible": False, "run_s": 60, "resources": {"vcpu": 2}},
            {"id": "p1", "preemptible": True, "run_s": 5760, "resources": {"vcpu": 2, "ram_mb": 4000}},
        ],
    },
    {"name": "b", "capacity": {"vcpu": 4, "gpu": 1}, "instances": []},
]
REQUEST = {"preemptible": False, "resources": {"vcpu": 2, "ram_mb": 4000}}
GONE = object()


def changed(doc, path, value):
    doc = copy.deepcopy(doc)
    *way, last = path
    place = doc
    for step in way:
        place = place[step]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return doc


def read_hosts(doc):
    return parse.hosts(parse.document(json.dumps(doc), "hosts.json"), "hosts.json")


def read_request(doc):
    return parse.request(parse.document(json.dumps(doc), "request.json"), read_hosts(HOSTS), "request.json")


def test_well_formed_documents_are_read():
    hosts = read_hosts(HOSTS)
    assert [host.name for host in hosts] == ["a", "b"]
    assert hosts[0].instances[1].run_s == 5760
    assert read_request(REQUEST).resources == {"vcpu": 2, "ram_mb": 4000}


INSTANCE = (0, "instances", 1)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ((0, "name"), GONE, "hosts[0].name: missing"),
        ((0, "name"), "", "hosts[0].name: must be a string"),
        ((0, "name"), 7, "hosts[0].name: must be a string"),
        ((1, "name"), "a", "hosts[1].name: duplicate host name 'a', first used at hosts[0].name"),
        ((0, "capacity"), GONE, "hosts[0].capacity: missing"),
        ((0, "capacity"), {}, "hosts[0].capacity: names no resource"),
        ((0, "capacity"), [8], "hosts[0].capacity: must be an object"),
        ((0, "capacity", "vcpu"), -1, "hosts[0].capacity.vcpu: must not be negative: -1"),
        ((0, "capacity", "vcpu"), float("nan"), "hosts[0].capacity.vcpu: must be a finite number, not NaN"),
        ((0, "capacity", "vcpu"), float("inf"), "hosts[0].capacity.vcpu: must be a finite number, not infinity"),
        ((0, "capacity", "vcpu"), "8", 'hosts[0].capacity.vcpu: must be a number, not "8"'),
        ((0, "capacity", "vcpu"), True, "hosts[0].capacity.vcpu: must be a number, not true"),
        ((0, "capacity", "vcpu"), None, "hosts[0].capacity.vcpu: must be a number, not null"),
        ((0, "capacity", "vcpu"), 1e13, "hosts[0].capacity.vcpu: must be at most 1e+12"),
        ((0, "capacity", "vcpu"), 10**400, "hosts[0].capacity.vcpu: must be at most 1e+12"),
        ((0, "instances"), GONE, "hosts[0].instances: missing"),
        ((0, "instances"), {}, "hosts[0].instances: must be a list"),
        ((0, "tags"), "ssd", "hosts[0].tags: must be a list"),
        ((0, "tags"), ["ssd", 3], "hosts[0].tags[1]: must be a string"),
        ((0, "attributes"), [], "hosts[0].attributes: must be an object"),
        ((0, "instnces"), [], "hosts[0].instnces: unknown field"),
        ((*INSTANCE, "id"), GONE, "hosts[0].instances[1].id: missing"),
        ((*INSTANCE, "id"), "n1", "hosts[0].instances[1].id: duplicate instance id 'n1'"),
        ((*INSTANCE, "preemptible"), GONE, "hosts[0].instances[1].preemptible: missing"),
        ((*INSTANCE, "preemptible"), 1, "hosts[0].instances[1].preemptible: must be true or false"),
        ((*INSTANCE, "run_s"), GONE, "hosts[0].instances[1].run_s: missing"),
        ((*INSTANCE, "run_s"), -5, "hosts[0].instances[1].run_s: must not be negative"),
        ((*INSTANCE, "run_s"), float("nan"), "hosts[0].instances[1].run_s: must be a finite number"),
        ((*INSTANCE, "resources"), GONE, "hosts[0].instances[1].resources: missing"),
        ((*INSTANCE, "resources", "ram_mb"), -1, "hosts[0].instances[1].resources.ram_mb: must not be negative"),
        ((*INSTANCE, "resources", "gpu"), 1, "hosts[0].instances[1].resources.gpu: unknown resource"),
        ((*INSTANCE, "checkpoint_s"), 6000, "hosts[0].instances[1].checkpoint_s: 6000 is later"),
        ((*INSTANCE, "price_usd_per_h"), -1, "hosts[0].instances[1].price_usd_per_h: must not be negative"),
        ((*INSTANCE, "group"), 4, "hosts[0].instances[1].group: must be a string"),
        ((0,), "a", 'hosts[0]: must be an object, not "a"'),
        ((*INSTANCE,), None, "hosts[0].instances[1]: must be an object, not null"),
    ],
)
def test_a_malformed_host_is_refused_with_the_path_to_the_field(path, value, says):
    with pytest.raises(BadInput) as refused:
        read_hosts(changed(HOSTS, path, value))
    assert refused.value.message.startswith(f"hosts.json: {says}")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("preemptible",), GONE, "request.preemptible: missing"),
        (("preemptible",), "false", "request.preemptible: must be true or false"),
        (("resources",), GONE, "request.resources: missing"),
        (("resources",), {}, "request.resources: names no resource"),
        (("resources", "vcpu"), -1, "request.resources.vcpu: must not be negative"),
        (("resources", "vcpu"), float("nan"), "request.resources.vcpu: must be a finite number"),
        (("resources", "tpu"), 1, "request.resources.tpu: unknown resource: no host has this resource"),
        (("anti_afinity",), ["x"], "request.anti_afinity: unknown field"),
        (("affinity",), "x", "request.affinity: must be a list"),
        (("expression",), 5, "request.expression: must be a ClassAd expression"),
    ],
)
def test_a_malformed_request_is_refused_with_the_path_to_the_field(path, value, says):
    with pytest.raises(BadInput) as refused:
        read_request(changed(REQUEST, path, value))
    assert refused.value.message.startswith(f"request.json: {says}")


def test_a_resource_of_another_host_is_known_and_merely_filters():
    assert read_request({"preemptible": False, "resources": {"gpu": 1}}).resources == {"gpu": 1}


def test_a_key_given_twice_is_refused():
    with pytest.raises(BadInput, match=r"request\.resources\.vcpu: given twice"):
        doc = parse.document('{"preemptible": true, "resources": {"vcpu": 1, "vcpu": 9}}', "r.json")
        parse.request(doc, read_hosts(HOSTS), "r.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f.json: the file is empty"),
        ("  \n", "f.json: the file is empty"),
        ('[{"name": ]', "f.json:1:11: not JSON"),
        ("[" * 100_000, "f.json: not JSON that can be read"),
        ("[" + "9" * 5000 + "]", "f.json: not JSON that can be read"),
    ],
)
def test_a_file_that_is_no_json_is_refused_with_its_place(text, says):
    with pytest.raises(BadInput) as refused:
        parse.document(text, "f.json")
    assert refused.value.message.startswith(says)


def test_prices_must_be_given_for_all_preemptible_instances_or_for_none():
    parse.require_prices(read_hosts(HOSTS))
    both = copy.deepcopy(HOSTS)
    both[0]["instances"][1]["price_usd_per_h"] = 0.1
    both[1]["instances"].append({"id": "p2", "preemptible": True, "run_s": 0, "resources": {"vcpu": 1}})
    with pytest.raises(BadInput, match=r"hosts\[1\]\.instances\[0\]\.price_usd_per_h: missing"):
        parse.require_prices(read_hosts(both))

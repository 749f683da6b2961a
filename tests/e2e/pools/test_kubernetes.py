"""Bags over a real Kubernetes to their end, through every way in which it takes a pod away.

API server, controller manager and scheduler are real; tests/support/pools/kubelet.py runs each pod's command.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.commands.reader import Reader
from tests.support.pools import kubernetes
from tests.support.pools.kubelet import Kubelet
from tests.support.pools.kubernetes import Cluster, Json, skip_unless_here, until
from windfall.cli.serve.pools import pool as pool_command
from windfall.client import Client
from windfall.pools.config import read_pools
from windfall.pools.contract import (
    CREDENTIALS,
    ENDED,
    FAILED,
    INVALID,
    QUOTA,
    RELEASED,
    RUNNING,
    TAKEN,
    TRANSIENT,
    Order,
    Pool,
    PoolError,
    Seen,
)
from windfall.pools.kinds import Place
from windfall.server import embedded

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]
TASKS = 30
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster():
    skip_unless_here()
    return kubernetes.cluster()


class Lab:
    """One namespace with a node of its own, and the pools.toml that uses them."""

    def __init__(self, cluster: Cluster, kubelet: Kubelet, namespace: str, folder: Path) -> None:
        self.cluster, self.kubelet, self.namespace, self.folder = cluster, kubelet, namespace, folder
        self._pools: list[Pool] = []

    def file(self, more: str = "", **common: object) -> Path:
        fields = {"name": "k", "kind": "kubernetes", "namespace": self.namespace, "slots": 2, "limit": 3} | common
        fields |= {"kubeconfig": str(self.cluster.kubeconfig), "python": sys.executable, "interval": "0.5s"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if f"{name} =" not in more]
        node = f'node_selector = {{"kubernetes.io/hostname" = "{self.kubelet.node}"}}'
        path = self.folder / "pools.toml"
        path.write_text("\n".join(["[[pool]]", *lines, node, "pod = {hostNetwork = true}", more]))
        return path

    def pool(self, more: str = "", url: str = "http://127.0.0.1:9", owner: str = "me", directory: str = "p") -> Pool:
        config = read_pools(self.file(more))[0]
        (self.folder / "token").write_text("wf_token")
        place = Place(url, self.folder / "token", self.folder / directory, owner=owner)
        assert config.of.open is not None
        self._pools.append(config.of.open(config, place))
        return self._pools[-1]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        self.cluster.call("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def pods(self) -> list[Json]:
        return self.cluster.items(f"/api/v1/namespaces/{self.namespace}/pods")

    def running(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods() if pod["status"]["phase"] == "Running"]

    def is_empty(self) -> bool:
        return self.cluster.left(self.namespace) == []

    def post(self, kind: str, body: Json) -> None:
        self.cluster.call("POST", f"/api/v1/namespaces/{self.namespace}/{kind}", body)

    def quota(self, **hard: str) -> None:
        body = {"metadata": {"name": "team"}, "spec": {"hard": {name.replace("_", "."): v for name, v in hard.items()}}}
        self.post("resourcequotas", body)
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas/team"
        until(lambda: self.cluster.call("GET", path).get("status", {}).get("used") is not None)


@contextmanager
def made(cluster: Cluster, tmp_path: Path, **capacity: str):
    number = next(_numbers)
    kubelet = Kubelet(cluster, f"node-{number}", **capacity)
    lab = Lab(cluster, kubelet, cluster.namespace(f"lab-{number}"), tmp_path)
    with ExitStack() as stack:
        stack.callback(kubelet.close)
        stack.callback(lab.close)
        yield lab


@pytest.fixture
def lab(cluster, tmp_path):
    with made(cluster, tmp_path) as one:
        yield one


def rows(pool: Pool) -> list[Seen]:
    found = pool.list()
    assert not isinstance(found, PoolError), found
    return found


def one(pool: Pool) -> Seen:
    (row,) = rows(pool)
    return row


def wait_for(pool: Pool, phase: str) -> Seen:
    until(lambda: one(pool).phase == phase, words=lambda: rows(pool))
    return one(pool)


@contextmanager
def served(lab: Lab, more: str = "", **common: object):
    pools = read_pools(lab.file(more, **common))
    with embedded.start(lab.folder / "state", pools=pools) as server, Client(server.url, server.token) as client:
        yield client


def run_bag(lab: Lab, during: Callable[[Client], None], seconds: float = 0.3, tasks: int = TASKS) -> list[str]:
    """Run a bag over the cluster to its end; the names of its hosts. Each task has one result."""
    ran = lab.folder / "ran"
    ran.mkdir()
    with served(lab) as client:
        script = f"sleep {seconds}; : > {ran}/{{}}.$$; echo {{}}"
        job = client.submit(["sh", "-c", script], range(tasks), name="bag")
        during(client)
        assert job.wait(240)["tasks"]["done"] == tasks
        assert {task.stdout.strip() for task in job.results()} == {str(n) for n in range(tasks)}
        return sorted(row["host"] for row in client.hosts())


def pod_runs(lab: Lab) -> None:
    until(lambda: lab.running(), words=lambda: lab.pods())


# --- a bag ----------------------------------------------------------------------------------------------------------


def test_a_bag_runs_to_its_end_and_leaves_nothing_behind(lab):
    hosts = run_bag(lab, lambda client: None, 0.05)
    assert hosts and all(host.startswith("k-1-") for host in hosts)
    assert len(lab.kubelet.started) == len(set(lab.kubelet.started)) <= 3
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_bag_survives_an_eviction_and_the_reason_is_shown(lab, caplog):
    def evict(client: Client) -> None:
        pod_runs(lab)
        until(lambda: client.hosts())
        lab.kubelet.evict(lab.running()[0])
        until(lambda: any("Evicted" in (host["left"] or "") for host in client.hosts()), words=client.hosts)

    run_bag(lab, evict)
    assert "was taken away: Evicted: The node was low on resource: memory." in caplog.text
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


# Python's ssl leaves a socket to the garbage collector whose peer is killed between connection and handshake.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_api_server_may_be_killed_in_mid_run_and_nothing_is_started_twice(lab):
    def restart(client: Client) -> None:
        pod_runs(lab)
        until(lambda: client.hosts())
        lab.cluster.kill("kube-apiserver")
        until(lambda: client.pools()[0]["last_error"], words=client.pools)
        assert "cannot be reached" in client.pools()[0]["last_error"]
        lab.cluster.run("kube-apiserver")
        lab.cluster.await_api()

    hosts = run_bag(lab, restart, 1.0)
    jobs_started = [name.rpartition("-")[0] for name in lab.kubelet.started]
    assert len(jobs_started) == len(set(jobs_started)), "one pod for each Job"
    assert len(hosts) == len(jobs_started) <= 3, "one Job for each host, and no more than the limit"
    ran = [path.name.split(".")[0] for path in (lab.folder / "ran").iterdir()]
    assert sorted(ran, key=int) == [str(n) for n in range(TASKS)], "no task ran twice"
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_worker_knows_its_remaining_lifetime(lab):
    with served(lab, 'lifetime = "10m"') as client:
        client.submit(["sleep", "{}"], [5], name="bag")
        until(lambda: client.hosts())
        (host,) = client.hosts()
        assert 0 < host["ad"]["lifetime_s"] <= 600, host


# --- how workers are lost -------------------------------------------------------------------------------------------


@contextmanager
def working(lab: Lab, more: str = ""):
    """A pool with one worker that runs, beside a server that only it knows."""
    with embedded.start(lab.folder / "state") as server, Client(server.url, server.token) as client:
        pool = lab.pool(more, url=server.url)
        (lab.folder / "token").write_text((lab.folder / "state" / "token").read_text())
        id = pool.start(Order("k-1-1", 1))
        assert isinstance(id, str), id
        wait_for(pool, RUNNING)
        until(lambda: client.hosts(), words=lambda: (rows(pool), lab.pods()))
        yield pool


def test_an_evicted_pod_is_taken_with_the_words_of_the_kubelet(lab):
    with working(lab) as pool:
        lab.kubelet.evict(lab.running()[0], "The node was low on resource: memory.")
        row = wait_for(pool, ENDED)
        assert row.cause == TAKEN and "Evicted: The node was low on resource: memory." in row.about
        until(lab.is_empty, words=lambda: (rows(pool), lab.cluster.left(lab.namespace)))
        assert one(pool).about == row.about, "it is still listed when its Job is gone"


def test_a_pod_that_a_more_important_one_preempts_is_taken_and_comes_not_again(cluster, tmp_path):
    with made(cluster, tmp_path, cpu="2") as lab, working(lab, 'cpu = 2\ngrace = "5s"') as pool:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        cluster.call("POST", path, {"metadata": {"name": f"urgent-{lab.namespace}"}, "value": 1000})
        container = {"name": "c", "image": "x", "command": ["sleep", "60"], "resources": {"requests": {"cpu": "2"}}}
        spec = {"priorityClassName": f"urgent-{lab.namespace}", "containers": [container], "restartPolicy": "Never"}
        spec["nodeSelector"] = {"kubernetes.io/hostname": lab.kubelet.node}
        lab.post("pods", {"metadata": {"name": "urgent"}, "spec": spec})
        row = wait_for(pool, ENDED)
        assert row.cause == TAKEN and "Preempted: " in row.about and "urgent" in row.about, row
        until(lambda: lab.running() == ["urgent"], words=lab.pods)
        until(lambda: lab.cluster.left(lab.namespace) == ["pods/urgent"], words=lambda: cluster.left(lab.namespace))


def test_a_pod_that_somebody_deletes_is_taken_and_comes_not_again(lab):
    with working(lab) as pool:
        lab.cluster.call("DELETE", f"/api/v1/namespaces/{lab.namespace}/pods/{lab.running()[0]}")
        row = wait_for(pool, ENDED)
        assert (row.cause, row.host) == (TAKEN, "k-1-1") and "deleted" in row.about
        until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_pod_that_exceeds_its_active_deadline_is_taken_with_that_reason(lab):
    # A worker ends before; so this one is a program that knows nothing of its lifetime.
    stub = lab.folder / "stubborn"
    stub.write_text("#!/bin/sh\ntrap '' TERM\nsleep 60 & wait; wait\n")
    stub.chmod(0o755)
    pool = lab.pool(f'python = "{stub}"\nlifetime = "10s"')
    pool.start(Order("k-1-1", 1))
    row = wait_for(pool, ENDED)
    assert row.cause == TAKEN and "DeadlineExceeded" in row.about, row
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_job_that_exceeds_its_deadline_is_ended_by_kubernetes_itself(lab):
    lab.kubelet.close()  # no node: nothing but the controller manager can end it
    pool = lab.pool('lifetime = "10s"\npending = "5s"')
    pool.start(Order("k-1-1", 1))
    pool.close()
    until(lambda: _failed_jobs(lab), 120.0, lambda: lab.cluster.left(lab.namespace))
    row = wait_for(lab.pool('lifetime = "10s"\npending = "1h"'), ENDED)
    assert row.cause == TAKEN and "DeadlineExceeded" in row.about, row
    until(lambda: rows(lab._pools[-1]) and lab.is_empty(), words=lambda: lab.cluster.left(lab.namespace))


def _failed_jobs(lab: Lab) -> list[str]:
    jobs = lab.cluster.items(f"/apis/batch/v1/namespaces/{lab.namespace}/jobs")
    return [job["metadata"]["name"] for job in jobs if job["status"].get("conditions")]


# --- workers that do not start --------------------------------------------------------------------------------------


def test_a_quota_is_reported_in_the_words_of_the_api(lab):
    lab.quota(requests_cpu="3")
    pool = lab.pool("cpu = 2")
    id = pool.start(Order("k-1-1", 1))
    assert isinstance(id, str), id
    until(lambda: lab.pods())
    answer = pool.start(Order("k-1-2", 1))
    assert isinstance(answer, PoolError) and answer.kind == QUOTA
    assert (
        "exceeded quota: team, requested: requests.cpu=2, used: requests.cpu=2, limited: requests.cpu=3" in answer.error
    )
    assert pool.start(Order("k-1-1", 1)) == id, "what was started is not refused when it is asked for again"
    assert lab.pool("cpu = 2", directory="other").start(Order("k-1-1", 1)) == id
    assert len(lab.cluster.names(lab.namespace, "jobs")) == 1
    pool.stop(id)
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_quota_of_the_namespace_is_shown_by_the_server(lab):
    lab.quota(pods="0")
    with served(lab) as client:
        client.submit(["true", "{}"], range(3), name="bag")
        until(lambda: client.pools()[0]["last_error"], words=client.pools)
        assert (
            "exceeded quota: team, requested: pods=1, used: pods=0, limited: pods=0" in client.pools()[0]["last_error"]
        )
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_quota_that_only_the_pod_meets_is_reported_without_the_right_to_make_pods(lab):
    lab.quota(pods="0")
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{lab.namespace}/roles/windfall"
    role = lab.cluster.call("GET", path)
    for rule in role["rules"]:
        rule["verbs"] = [verb for verb in rule["verbs"] if "pods" not in rule["resources"] or verb != "create"]
    lab.cluster.call("PUT", path, role)
    pool = lab.pool()
    until(lambda: _cannot_make_pods(pool))
    row = wait_for(pool, ENDED)
    assert row.cause == FAILED and "exceeded quota: team" in row.about, row
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def _cannot_make_pods(pool: Pool) -> bool:
    """The API server needs a moment to learn of a changed role."""
    return isinstance(pool.start(Order("k-1-1", 1)), str)


def test_an_image_that_cannot_be_pulled_ends_the_worker_with_the_words_of_the_kubelet(lab):
    pool = lab.pool('image = "missing/image"')
    pool.start(Order("k-1-1", 1))
    row = wait_for(pool, ENDED)
    assert row.cause == FAILED and 'Back-off pulling image "missing/image"' in row.about
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_pod_that_finds_no_node_is_pending_and_then_given_up_with_the_words_of_the_scheduler(lab):
    pool = lab.pool('gpus = 1\npending = "4s"')
    pool.start(Order("k-1-1", 1))
    row = wait_for(pool, ENDED)
    assert row.cause == FAILED and "Insufficient nvidia.com/gpu" in row.about, row
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_pod_with_a_gpu_goes_to_the_node_that_has_one(cluster, tmp_path):
    with made(cluster, tmp_path, **{"nvidia.com/gpu": "1"}) as lab, working(lab, "gpus = 1") as pool:
        assert isinstance(pool.start(Order("k-1-2", 1)), str)
        words = lambda: [row.about for row in rows(pool)]  # noqa: E731
        until(lambda: any("Insufficient nvidia.com/gpu" in about for about in words()), words=words)
        assert len(lab.running()) == 1
        for row in rows(pool):
            pool.stop(row.id)
        until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_a_worker_that_ends_by_itself_leaves_its_last_words(lab):
    with embedded.start(lab.folder / "state") as server:
        pool = lab.pool(url=server.url)
        (lab.folder / "token").write_text("wf_\N{SNOWMAN}")
        pool.start(Order("k-1-1", 1))
        row = wait_for(pool, ENDED)
        assert row.cause == FAILED and "no usable token" in row.about, row
        until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ('namespace = "nowhere"', CREDENTIALS, "nowhere"),
        ('resource_requests = {"not a resource" = 1}', INVALID, "not a resource"),
        ('priority_class = "none"', INVALID, "no PriorityClass with name none was found"),
    ],
)
def test_an_order_that_can_never_succeed_is_refused_in_the_words_of_the_api(lab, more, kind, words):
    answer = lab.pool(more).start(Order("k-1-1", 1))
    assert isinstance(answer, PoolError) and (answer.kind, words in answer.error) == (kind, True), answer
    assert lab.is_empty()


def test_credentials_and_unreachable_servers_are_told_apart(lab, tmp_path):
    config = json.loads(lab.cluster.kubeconfig.read_text())
    for name, change, kind in (
        ("expired", lambda: config["users"][0]["user"].update(token="old"), CREDENTIALS),
        ("elsewhere", lambda: config["clusters"][0]["cluster"].update(server="https://127.0.0.1:9"), TRANSIENT),
    ):
        change()
        (tmp_path / name).write_text(json.dumps(config))
        pool = lab.pool(f'kubeconfig = "{tmp_path / name}"\ntime_limit = "3s"')
        answers = [pool.start(Order("k-1-1", 1)), pool.list()]
        assert [answer.kind for answer in answers if isinstance(answer, PoolError)] == [kind, kind], answers


# --- ours and others' -----------------------------------------------------------------------------------------------


def test_workers_are_found_by_their_labels_when_the_folder_is_lost(lab):
    first = lab.pool()
    id = first.start(Order("k-1-1", 1))
    first.close()
    second = lab.pool(directory="another")
    assert [(row.id, row.host) for row in rows(second)] == [(id, "k-1-1")]
    assert second.start(Order("k-1-1", 1)) == id
    second.stop(id)
    assert wait_for(second, ENDED).cause == RELEASED
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


def test_jobs_that_only_look_like_ours_are_never_touched(lab):
    pool = lab.pool()
    id = pool.start(Order("k-1-1", 1))
    path = f"/apis/batch/v1/namespaces/{lab.namespace}/jobs"
    job = lab.cluster.call("GET", f"{path}/{id}")
    copy = {"metadata": {"name": "mine", "labels": job["metadata"]["labels"]}, "spec": {"template": {"spec": {}}}}
    container = {"name": "c", "image": "x", "command": ["sleep", "60"]}
    here = {"kubernetes.io/hostname": lab.kubelet.node}
    copy["spec"]["template"]["spec"] = {"containers": [container], "restartPolicy": "Never", "nodeSelector": here}
    lab.cluster.call("POST", path, copy)
    theirs = lab.pool(owner="somebody else", directory="theirs")
    assert isinstance(theirs.start(Order("k-1-1", 1)), str)
    until(lambda: len(lab.cluster.names(lab.namespace, "jobs")) == 3)
    assert one(pool).host == "k-1-1"
    for name in lab.cluster.names(lab.namespace, "jobs"):
        pool.stop(name)
    until(lambda: id not in lab.cluster.names(lab.namespace, "jobs"))
    assert len(lab.cluster.names(lab.namespace, "jobs")) == 2


def test_the_token_is_in_the_secret_that_goes_with_its_job(lab):
    pool = lab.pool()
    id = pool.start(Order("k-1-1", 1))
    assert isinstance(id, str)
    everything = json.dumps(
        [*lab.pods(), lab.cluster.call("GET", f"/apis/batch/v1/namespaces/{lab.namespace}/jobs/{id}")]
    )
    assert "wf_token" not in everything
    assert lab.cluster.names(lab.namespace, "secrets") == [id]
    lab.cluster.call("DELETE", f"/apis/batch/v1/namespaces/{lab.namespace}/jobs/{id}?propagationPolicy=Background")
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))
    assert wait_for(pool, ENDED).cause == TAKEN


def test_a_job_that_nobody_removes_is_removed_by_kubernetes(lab):
    pool = lab.pool('keep = "1d"')
    id = pool.start(Order("k-1-1", 1))
    job = lab.cluster.call("GET", f"/apis/batch/v1/namespaces/{lab.namespace}/jobs/{id}")
    assert job["spec"]["ttlSecondsAfterFinished"] == 86400
    pool.close()
    path = f"/apis/batch/v1/namespaces/{lab.namespace}/jobs/{id}"
    lab.cluster.call("PATCH", path, {"spec": {"ttlSecondsAfterFinished": 1}})
    # Its server is not there, so the worker gives up; then nobody is left but Kubernetes.
    until(lab.is_empty, 150.0, lambda: lab.cluster.left(lab.namespace))


# --- the doctor -----------------------------------------------------------------------------------------------------


def doctor(*options: str) -> tuple[int, Json]:
    ran = CliRunner().invoke(pool_command, ["doctor", *options, "--json"])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.output
    return ran.exit_code, json.loads(ran.stdout)


def test_the_doctor_starts_a_worker_in_the_cluster_and_ends_it(lab):
    code, found = doctor("k", "--pools", str(lab.file()), "--wait", "60s")
    assert (code, found["ok"]) == (0, True), found
    assert "Kubernetes v1." in found["checks"][0]["what"] and "reaches the server" in found["checks"][-1]["what"]
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


@pytest.mark.parametrize(
    ("more", "error", "hint"),
    [
        ('namespace = "default"', "not allowed: create, get, list, watch, delete", "RoleBinding"),
        ('priority_class = "none"', "no PriorityClass with name none", "correct the settings"),
        ("pod = {}", "in a pod that address is the pod itself", "--listen"),
        ('kubeconfig = "/none"', None, ""),
    ],
)
def test_the_doctor_says_what_is_wrong_with_a_cluster(lab, more, error, hint):
    path = lab.file(more)
    if "pod = {}" in more:
        path.write_text(path.read_text().replace("pod = {hostNetwork = true}\n", ""))
    if error is None:
        ran = CliRunner().invoke(pool_command, ["doctor", "k", "--pools", str(path), "--no-trial"])
        assert ran.exit_code != 0
        return
    code, found = doctor("k", "--pools", str(path), "--no-trial")
    wrong = [check for check in found["checks"] if check["error"]]
    assert code == 1 and error in wrong[0]["error"] and hint in wrong[0]["hint"], found
    assert lab.is_empty()


def test_the_doctor_reports_a_quota_and_bad_credentials(lab, tmp_path):
    lab.quota(requests_cpu="1")
    code, found = doctor("k", "--pools", str(lab.file("cpu = 2")), "--no-trial")
    wrong = [check for check in found["checks"] if check["error"]]
    assert code == 1 and len(wrong) == 1 and "exceeded quota: team" in wrong[0]["error"], found
    config = json.loads(lab.cluster.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "old"
    (tmp_path / "expired").write_text(json.dumps(config))
    code, found = doctor("k", "--pools", str(lab.file(f'kubeconfig = "{tmp_path / "expired"}"')), "--no-trial")
    wrong = [check for check in found["checks"] if check["error"]]
    assert code == 1 and wrong[0]["error"] == "Unauthorized", found


def test_stopping_twice_and_firmly_ends_a_worker_that_does_not_listen(lab):
    stub = lab.folder / "stubborn"
    stub.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 & wait; wait\n")
    stub.chmod(0o755)
    pool = lab.pool(f'python = "{stub}"\ngrace = "10m"')
    id = pool.start(Order("k-1-1", 1))
    assert isinstance(id, str)
    wait_for(pool, RUNNING)
    began = time.monotonic()
    while one(pool).phase != ENDED:
        pool.stop(id)
        assert time.monotonic() < began + 90, rows(pool)
        time.sleep(0.5)
    assert one(pool).cause == RELEASED
    until(lab.is_empty, words=lambda: lab.cluster.left(lab.namespace))


# --- the how-to, typed ----------------------------------------------------------------------------------------------


def test_the_howto_can_be_typed_along(lab, tmp_path):
    (tmp_path / "reader").mkdir()
    reader = Reader(tmp_path / "reader", "kubernetes", {'"windfall"': f'"{lab.namespace}"', "8Gi": "64Mi"})
    more = f'kubeconfig = "{lab.cluster.kubeconfig}"\npython = "{sys.executable}"\ninterval = "0.5s"\n'
    more += f'node_selector = {{"kubernetes.io/hostname" = "{lab.kubelet.node}"}}\npod = {{hostNetwork = true}}\n'
    reader.file("pools.toml", more=more)
    token, serve = reader.block(2)
    ((doctor, said),) = reader.block(3)
    lab.quota(requests_cpu="2")
    try:
        reader.types(token[0])
        reader.types(serve[0])
        told = [line.replace("namespace windfall", f"namespace {lab.namespace}") for line in said]
        told = [re.sub(r"API server .*", "API server ...", line) for line in told]
        told = [line.replace("head.example.org:7272", f"127.0.0.1:{reader.port}") for line in told]
        told = [re.sub(r'pods "windfall.*', 'pods "windfall... exceeded quota: team, ...', line) for line in told]
        reader.follows(doctor, told, exit_code=1)
        lab.cluster.call("DELETE", f"/api/v1/namespaces/{lab.namespace}/resourcequotas/team")
        assert "pool cluster works" in reader.types(f"{doctor} --wait 2m")
        (reader.folder / "simulate").write_text("#!/bin/sh\necho $1\n")
        (reader.folder / "simulate").chmod(0o755)
        submit = re.findall(r"\*\*6\. .*?`(windfall submit .*?)`", reader.page.read_text())[0]
        reader.types(f"{submit.replace('1-1000', '1-10')} && windfall wait last")
    finally:
        reader.leaves()
    until(lab.is_empty)

"""Kind `kubernetes` without a cluster: what is made from settings, and what is read from statuses and errors."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.errors import BadInput
from windfall.pools.config import read_pools
from windfall.pools.contract import (
    CREDENTIALS,
    ENDED,
    FAILED,
    INVALID,
    PENDING,
    QUOTA,
    RUNNING,
    TAKEN,
    TRANSIENT,
    Order,
)
from windfall.pools.kinds import Place, PoolConfig, kind_named
from windfall.pools.kubernetes import manifest, pod_main
from windfall.pools.kubernetes.answers import Job, Pod, failure, unix_t
from windfall.pools.kubernetes.manifest import HOST, OWNER, POOL, Worker, label_value, resources, selector
from windfall.pools.kubernetes.settings import KubernetesSettings, Toleration
from windfall.pools.kubernetes.verdict import judge
from windfall.pools.starting.shipped import is_loopback

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def config(tmp_path: Path, text: str) -> PoolConfig:
    (tmp_path / "pools.toml").write_text(f'[[pool]]\nname = "k"\nkind = "kubernetes"\n{text}')
    return read_pools(tmp_path / "pools.toml")[0]


def made(settings: KubernetesSettings, slots: int = 2, has_certificate: bool = False) -> dict:
    pool = PoolConfig("k", "kubernetes", slots=slots, settings=settings)
    worker = Worker("me", "k", "k-1-1")
    return manifest.job(pool, worker, Order("k-1-1", slots), "http://head:7272", has_certificate)


# --- what is made ---------------------------------------------------------------------------------------------------


def test_a_job_is_one_pod_that_is_never_started_again_and_has_an_end():
    job = made(KubernetesSettings(lifetime="2h", pending="10m"))
    pod = job["spec"]["template"]["spec"]
    assert (job["spec"]["backoffLimit"], job["spec"]["completions"], pod["restartPolicy"]) == (0, 1, "Never")
    assert pod["activeDeadlineSeconds"] == 7200
    assert job["spec"]["activeDeadlineSeconds"] == 7800, "the time for which it may wait for a node comes on top"
    assert job["spec"]["ttlSecondsAfterFinished"] > 0


def test_job_pod_and_secret_carry_our_label_and_the_state():
    job = made(KubernetesSettings(labels={"kueue.x-k8s.io/queue-name": "lab"}))
    secret = manifest.secret(Worker("me", "k", "k-1-1"), "uid-1", "wf_token")
    for metadata in (job["metadata"], job["spec"]["template"]["metadata"], secret["metadata"]):
        assert metadata["labels"].items() >= {manifest.MANAGED_BY: "windfall", OWNER: "me", POOL: "k"}.items()
        assert metadata["annotations"] == {OWNER: "me", POOL: "k", HOST: "k-1-1"}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab"


def test_the_secret_belongs_to_the_job_and_the_token_stands_nowhere_else():
    job, secret = made(KubernetesSettings()), manifest.secret(Worker("me", "k", "k-1-1"), "uid-1", "wf_token", "PEM")
    assert secret["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": "uid-1"}
    ]
    assert (
        base64.b64decode(secret["data"]["token"]) == b"wf_token"
        and base64.b64decode(secret["data"]["ca.pem"]) == b"PEM"
    )
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["secret"]["secretName"] == secret["metadata"]["name"]
    assert "wf_token" not in str(job)


def test_the_command_of_a_pod_is_that_of_a_worker():
    container = made(KubernetesSettings(python="python3.12"), 4, True)["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == [
        "python3.12", "/windfall/given/run.py", "86400", "http://head:7272", "/windfall/given/token",
        "--dir", "/windfall/work", "--cafile", "/windfall/given/ca.pem",
        "--name", "k-1-1", "--pool", "k", "--slots", "4", "--idle-exit", "60", "--unreachable-exit", "3600",
    ]  # fmt: skip


def test_resources_follow_slots_and_settings():
    assert resources(KubernetesSettings(), 4) == {"requests": {"cpu": "4"}, "limits": {}}
    found = resources(
        KubernetesSettings(
            cpu="500m", memory="4Gi", gpus=2, resource_requests={"ephemeral-storage": "1Gi"}, resource_limits={"cpu": 2}
        ),
        4,
    )
    assert found["requests"] == {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"}
    assert found["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "2", "cpu": "2"}


def test_selectors_tolerations_and_other_fields_reach_the_pod():
    settings = KubernetesSettings(
        node_selector={"gpu": "a100"},
        tolerations=[Toleration("spot", "Exists", effect="NoSchedule", toleration_seconds=0)],
        priority_class="low",
        image_pull_secrets=["registry"],
        env={"OMP_NUM_THREADS": "1"},
        pod={"hostNetwork": True},
        grace="45s",
    )
    pod = made(settings)["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"gpu": "a100"} and pod["priorityClassName"] == "low" and pod["hostNetwork"] is True
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 0}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}] and pod["terminationGracePeriodSeconds"] == 45
    assert pod["containers"][0]["env"] == [{"name": "OMP_NUM_THREADS", "value": "1"}]
    assert pod["automountServiceAccountToken"] is False
    with_account = made(KubernetesSettings(service_account="reader"))["spec"]["template"]["spec"]
    assert with_account["serviceAccountName"] == "reader" and "automountServiceAccountToken" not in with_account


@given(st.text(), st.text(min_size=1), st.text(min_size=1))
def test_every_name_and_label_is_one_that_kubernetes_takes(owner, pool, host):
    worker = Worker(owner, pool, host)
    assert SUBDOMAIN.match(worker.name) and len(worker.name) <= 52, "a pod's name has eleven characters more"
    for value in worker.labels.values():
        assert LABEL_VALUE.match(value) and len(value) <= 63
    assert Worker(owner, pool, host).name == worker.name, "the same order has the same name"
    assert Worker(owner + "x", pool, host).name != worker.name
    assert Worker(owner, pool, host + "x").name != worker.name


def test_a_label_keeps_what_it_can_show_and_selects_one_pool_of_one_state():
    assert label_value("a1b2-c3") == "a1b2-c3" and label_value("somebody else") != label_value("somebody's")
    assert selector("me", "k") == "app.kubernetes.io/managed-by=windfall,windfall/owner=me,windfall/pool=k"


# --- settings -------------------------------------------------------------------------------------------------------


def test_settings_are_read_from_the_file(tmp_path):
    pool = config(
        tmp_path,
        'namespace = "lab"\nmemory = "4Gi"\ncpu = 0.5\nnode_selector = {disk = "ssd"}\nlifetime = "2h"\n'
        'tolerations = [{key = "spot", operator = "Exists", tolerationSeconds = 60}]\n',
    )
    assert (pool.settings.namespace, pool.settings.cpu) == ("lab", 0.5)
    assert (pool.rules.limit, pool.rules.backlog) == (10, 5), "a cluster is a queue: few wait at once"
    assert pool.settings.tolerations[0].toleration_seconds == 60


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('image = " "', "no image"),
        ('namespace = "Not Valid"', "no name of a namespace"),
        ('memory = "lots"', "memory = 'lots' is no quantity"),
        ('cpu = "-1"', "cpu = '-1' is no quantity"),
        ('resource_requests = {"ephemeral-storage" = "10 GB"}', "resource_requests.ephemeral-storage"),
        ("gpus = -1", "gpus = -1"),
        ('lifetime = "1s"', "lifetime = 1s"),
        ('grace = "soon"', "grace: 'soon' is no duration"),
        ("pod = {containers = []}", "pod.containers is written by the pool itself"),
        ('labels = {"windfall/owner" = "you"}', "a label of the pool's own"),
        ('server = "head:7272"', "server = 'head:7272'"),
        ('kubeconfig = "none.yaml"', "none.yaml"),
        ('imge = "python"', "unknown field 'imge'"),
        ('tolerations = [{ky = "spot"}]', "ky"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, text, error):
    with pytest.raises(BadInput) as raised:
        config(tmp_path, text)
    assert error in raised.value.message and str(tmp_path / "pools.toml") in raised.value.message


def test_a_pool_whose_cluster_cannot_be_named_says_so_in_every_call(tmp_path):
    (tmp_path / "kubeconfig").write_text("{}")
    pool = config(tmp_path, 'kubeconfig = "kubeconfig"\n')
    opened = kind_named("kubernetes").open(pool, Place("http://127.0.0.1:1", tmp_path / "token", tmp_path))
    for answer in (opened.start(Order("k-1-1")), opened.list(), opened.stop("x")):
        assert answer.kind == CREDENTIALS and answer.error
    (check,) = opened.doctor()
    assert check.error and check.hint
    opened.close()


# --- what is read ---------------------------------------------------------------------------------------------------


def job_of(**status) -> Job:
    metadata = {"name": "j", "uid": "u", "creationTimestamp": "2026-11-16T16:00:00Z"}
    return msgspec.convert({"metadata": metadata, "status": status}, Job)


def pod_of(phase: str, deleting: str | None = None, **status) -> Pod:
    metadata = {"name": "j-x", "uid": "p", "deletionTimestamp": deleting, "ownerReferences": [{"uid": "u"}]}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase, **status}}, Pod)


def ended_with(**terminated) -> list[dict]:
    return [{"state": {"terminated": terminated}}]


def failed(reason: str = "BackoffLimitExceeded", message: str = "") -> Job:
    return job_of(conditions=[{"type": "Failed", "status": "True", "reason": reason, "message": message}])


def test_a_job_without_a_pod_or_a_node_is_pending():
    assert judge("h", job_of(), []).phase == PENDING
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no cpu"}
    verdict = judge("h", job_of(), [pod_of("Pending", conditions=[condition])])
    assert (verdict.phase, verdict.about) == (PENDING, "Unschedulable: 0/1 nodes: no cpu")
    assert verdict.since_t == unix_t("2026-11-16T16:00:00Z")


def test_a_pod_that_runs_is_running_and_one_that_is_complete_has_ended_in_good_order():
    assert judge("h", job_of(), [pod_of("Running", startTime="2026-11-16T16:01:00Z")]).phase == RUNNING
    complete = job_of(conditions=[{"type": "Complete", "status": "True"}])
    verdict = judge("h", complete, [pod_of("Succeeded")])
    assert (verdict.phase, verdict.cause, verdict.about) == (ENDED, "", "")
    assert judge("h", job_of(), [pod_of("Succeeded")]).phase == ENDED, "the Job's own status may come later"


@pytest.mark.parametrize(
    ("job", "pod", "cause", "about"),
    [
        (failed(), pod_of("Failed", reason="Evicted", message="low on memory"), TAKEN, "Evicted: low on memory"),
        (failed("DeadlineExceeded", "Job was active longer"), None, TAKEN, "DeadlineExceeded: Job was active longer"),
        (
            job_of(),
            pod_of("Failed", conditions=[
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for x"}
            ]),
            TAKEN,
            "PreemptionByScheduler: for x",
        ),
        (
            failed(),
            pod_of("Failed", containerStatuses=ended_with(exitCode=2, reason="Error", message="a\nno usable token\n")),
            FAILED,
            "exit code 2: a no usable token",
        ),
        (failed(), pod_of("Failed", containerStatuses=ended_with(exitCode=137, reason="OOMKilled")), FAILED,
         "signal 9 (OOMKilled)"),
        (failed(), pod_of("Failed"), FAILED, "says nothing"),
        (failed("BackoffLimitExceeded", "Job has reached it"), None, FAILED, "Job has reached it"),
        (
            job_of(),
            pod_of("Pending", containerStatuses=[{"state": {"waiting": {
                "reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]),
            FAILED,
            "ImagePullBackOff: Back-off pulling image",
        ),
    ],
)  # fmt: skip
def test_the_end_of_a_worker_has_its_cause_and_the_words_of_kubernetes(job, pod, cause, about):
    verdict = judge("k-1-1", job, [pod] if pod else [])
    assert (verdict.phase, verdict.cause) == (ENDED, cause)
    assert "k-1-1" in verdict.about and about in verdict.about


def test_a_pod_that_is_being_deleted_is_lost_even_if_its_job_makes_another():
    leaving = pod_of("Running", "2026-11-16T16:30:00Z")
    verdict = judge("h", job_of(), [pod_of("Pending"), leaving])
    assert (verdict.phase, verdict.is_lost) == (RUNNING, True)
    assert verdict.taken_at_t == unix_t("2026-11-16T16:30:00Z"), "until then it may hand its tasks back"


def test_a_worker_that_heeds_the_deletion_of_its_pod_was_taken_all_the_same():
    verdict = judge("h", job_of(), [pod_of("Succeeded", "2026-11-16T16:30:00Z")])
    assert (verdict.phase, verdict.cause) == (ENDED, TAKEN) and "its pod was deleted" in verdict.about


def test_null_stands_for_absent_in_answers():
    raw = b'{"metadata":{"name":"j","annotations":null},"status":{"conditions":null}}'
    assert judge("h", msgspec.json.decode(raw, type=Job), []).phase == PENDING


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (401, "Unauthorized", CREDENTIALS),
        (403, 'jobs.batch is forbidden: User "x" cannot create resource "jobs" in API group "batch"', CREDENTIALS),
        (403, 'pods "x" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=2, limited: cpu=2', QUOTA),
        (403, 'pods "x" is forbidden: status unknown for quota: q', TRANSIENT),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest"', INVALID),
        (404, 'namespaces "none" not found', INVALID),
        (409, "the object has been modified", TRANSIENT),
        (422, 'Job.batch "x" is invalid: spec.template.spec.containers[0].image: Required value', INVALID),
        (429, "too many requests", TRANSIENT),
        (500, "etcdserver: request timed out", TRANSIENT),
        (503, "the server is currently unable to handle the request", TRANSIENT),
    ],
)  # fmt: skip
def test_errors_are_typed_and_keep_the_words_of_the_api(code, message, kind):
    error = failure(code, msgspec.json.encode({"kind": "Status", "message": message, "code": code}))
    assert (error.kind, error.error, error.code) == (kind, message, code)


def test_an_error_that_is_not_json_is_shown_as_it_came():
    assert failure(502, b"<html>Bad Gateway</html>").error == "<html>Bad Gateway</html>"
    assert failure(502, b"").error == "the API server answered 502"


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://127.0.0.1:7272", True), ("http://localhost:7272", True), ("http://[::1]:1", True),
        ("http://10.0.0.1:7272", False), ("https://head.example.org", False),
    ],
)  # fmt: skip
def test_an_address_that_means_the_pod_itself_is_known(url, is_local):
    assert is_loopback(url) is is_local


# --- what a pod runs ------------------------------------------------------------------------------------------------


def test_a_pod_becomes_the_worker_and_knows_what_is_left_of_its_lifetime(tmp_path, monkeypatch):
    became = []
    monkeypatch.setattr(pod_main, "fetch", lambda *given: repr(given).encode())
    monkeypatch.setattr(pod_main.os, "execv", lambda path, argv: became.append(argv))
    monkeypatch.setattr(pod_main.time, "time", lambda: tmp_path.stat().st_ctime + 1000)
    pod_main.os.utime(tmp_path, (0, pod_main.time.time() - 300))  # the image was pulled for five minutes
    given = []
    monkeypatch.setattr(pod_main, "give", lambda *words: given.append(words))
    options = ["--dir", str(tmp_path), "--name", "h"]
    pod_main.main(["3600", "http://head:1", "ticket", *options])
    assert became == [[sys.executable, str(tmp_path / "worker.pyz"), "--server", "-", *options, "--lifetime", "3300s"]]
    assert (tmp_path / "worker.pyz").read_bytes() == b"('http://head:1', '', 60.0)"
    assert given == [("http://head:1", "ticket")]


def test_a_pod_gives_its_worker_a_secret_that_is_in_no_file(tmp_path):
    (tmp_path / "ticket").write_text("wfp_ticket\n")
    code = "from windfall.pools.kubernetes.pod_main import give; import sys; give(*sys.argv[1:]); "
    code += "print(input(), input())"
    command = [sys.executable, "-c", code, "http://head:1", str(tmp_path / "ticket")]
    said = [subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout for _ in range(2)]
    assert all(re.fullmatch(r"http://head:1 wfp_ticket [0-9a-f]{64}\n", each) for each in said) and said[0] != said[1]
    assert [path.name for path in tmp_path.iterdir()] == ["ticket"]


def test_a_pod_fetches_the_worker_from_the_standby_if_its_server_is_away(monkeypatch):
    asked = []

    def urlopen(url, **_):
        asked.append(url)
        if "one" in url:
            raise OSError("away")
        return io.BytesIO(b"worker")

    monkeypatch.setattr(pod_main.urllib.request, "urlopen", urlopen)
    assert pod_main.fetch("http://one:1,http://two:2/", "", 0.0) == b"worker"
    assert asked == ["http://one:1/worker.pyz", "http://two:2/worker.pyz"]


def test_a_pod_that_cannot_reach_the_server_says_so():
    with pytest.raises(
        SystemExit, match=re.escape("the server at http://127.0.0.1:9 cannot be reached from this pod: ")
    ):
        pod_main.fetch("http://127.0.0.1:9", "", -1.0)

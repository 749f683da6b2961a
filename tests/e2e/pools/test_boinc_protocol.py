"""Volunteers that lie, repeat themselves and forget, against a real server: what is believed, sent again, ended."""

from __future__ import annotations

import hashlib
import os
import random
import time
import urllib.error
from collections.abc import Iterator

import pytest

from tests.support.pools import boinc
from tests.support.pools.boinc_front import World
from tests.support.pools.fake_volunteer import FILE, RESULT, FakeVolunteer, post, tag
from windfall.boinc.names import read_name
from windfall.errors import BadInput

MUTATIONS = int(os.environ.get("WINDFALL_BOINC_MUTATIONS", "1000"))
"""Messages that are changed and sent; `make test-boinc` sends 10,000."""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    boinc.require()
    made = World(tmp_path_factory.mktemp("boinc"))
    try:
        yield made
    finally:
        made.cluster.close()


@pytest.fixture(autouse=True)
def nothing_is_left(world) -> Iterator[None]:
    yield
    for row in world.client.jobs():
        if row["state"] not in ("done", "failed", "cancelled"):
            world.client.job(row["job"]).cancel()


def test_a_liar_is_outvoted_and_loses_its_standing(world):
    job = world.submit(2, quorum=2)
    liar, honest, third = (world.volunteer(name) for name in ("Eve", "Ada", "Bob"))
    liar.says = lambda task: "something else\n"
    assert liar.work() and honest.work()
    assert job.status()["tasks"]["done"] == 0
    assert third.work()
    job.wait(30)
    assert [task.stdout for task in job.results()] == ["task 0\n", "task 1\n"]
    hosts = {row["host"]: row for row in world.client.hosts()}
    assert world.credit("Eve") == 0 < world.credit("Ada") == world.credit("Bob")
    assert any(name.startswith("boinc-") for name in hosts)


def test_a_validator_says_what_must_agree_and_what_is_wrong(world):
    job = world.submit(1, quorum=2, validator="round", max_failures=5)
    vague, wrong, near = (world.volunteer(name) for name in ("Kim", "Lou", "Max"))
    vague.says = lambda task: "0.33333\n"
    wrong.says = lambda task: "no number\n"
    near.says = lambda task: "0.33341\n"
    assert vague.work() and wrong.work()
    assert job.status()["tasks"]["done"] == 0
    assert near.work()
    assert job.wait(30)["tasks"]["done"] == 1
    assert {task.stdout for task in job.results()} <= {"0.33333\n", "0.33341\n"}
    assert world.credit("Lou") == 0 < world.credit("Kim") == world.credit("Max")


def test_an_unknown_validator_is_refused_with_those_that_exist(world):
    with pytest.raises(BadInput, match="no validator 'roud'") as caught:
        world.submit(1, quorum=2, validator="roud")
    assert "round" in caught.value.hint


def test_a_worker_of_ones_own_settles_a_vote(world):
    job = world.submit(1, quorum=3)
    liar = world.volunteer("Mallory")
    liar.says = lambda task: "lie\n"
    assert liar.work() == 1
    world.cluster.start_worker("own", slots=1)
    try:
        job.wait(60)
    finally:
        world.cluster.workers["own"].terminate()
        world.cluster.workers["own"].wait(30)
    assert [task.stdout for task in job.results()] == ["task 0\n"]


def test_a_worker_of_ones_own_shows_who_lied_by_the_validator(world):
    """What the validator prints of the worker's result is compared with what it printed of the volunteers'."""
    settings = {"quorum": 3, "validator": "round", "estimate": "1h", "outputs": ["seen"]}
    job = world.client.submit(["sh", "-c", "echo 0.33339; echo 0.5 > seen"], range(1), **settings)
    honest, liar = world.volunteer("Nell"), world.volunteer("Mallory")
    honest.says, liar.says = (lambda task: "0.33341\n"), (lambda task: "0.7\n")
    honest.files = liar.files = {"seen": b"0.5\n"}
    assert honest.work() == liar.work() == 1
    world.cluster.start_worker("judge", slots=1)
    try:
        job.wait(60)
    finally:
        world.cluster.workers["judge"].terminate()
        world.cluster.workers["judge"].wait(30)
    assert [task.stdout for task in job.results()] == ["0.33339\n"]
    assert world.credit("Mallory") == 0 < world.credit("Nell")


def test_an_answer_that_was_lost_is_sent_again_under_the_same_names(world):
    job = world.submit(2)
    volunteer = world.volunteer("Carl")
    lost = tag(volunteer.call(lose=True), "wu_name")
    assert lost
    again = tag(volunteer.call(wants=0.0), "wu_name")
    assert again == lost
    volunteer.work()
    job.wait(30)
    assert job.status()["tasks"]["done"] == 2


def test_a_report_is_acknowledged_as_often_as_it_comes(world):
    job = world.submit(1)
    volunteer = world.volunteer("Dora")
    volunteer.call()
    (name,) = volunteer.held
    volunteer.finish(name)
    first, second = volunteer.call(wants=0.0, lose=True), volunteer.call(wants=0.0)
    assert f"<name>{name}</name>" in first and "<result_ack>" in second
    assert job.status()["tasks"]["done"] == 1


def test_a_success_without_its_upload_is_none(world):
    job = world.submit(1, max_losses=2)
    volunteer = world.volunteer("Fay")
    for _ in range(2):
        volunteer.call()
        (name,) = volunteer.held
        file = FILE.format(name=name, size=5, md5=hashlib.md5(b"hello").hexdigest())
        volunteer.reports[name] = RESULT.format(name=name, state=5, exit=0, stderr="", file=file)
        volunteer.call(wants=0.0)
    assert job.wait(30)["tasks"]["failed"] == 1


def test_nobody_reports_for_another(world):
    job = world.submit(1)
    volunteer, thief = world.volunteer("Gus"), world.volunteer("Hal")
    volunteer.call()
    (name,) = volunteer.held
    thief.held[name] = volunteer.held[name]
    answer = thief.call(wants=0.0)
    assert "<result_abort>" in answer and name not in thief.held
    thief.reports[name] = RESULT.format(name=name, state=6, exit=203, stderr="", file="")
    thief.call(wants=0.0)
    volunteer.finish(name)
    volunteer.call(wants=0.0)
    assert job.wait(30)["tasks"]["done"] == 1


def test_a_client_without_its_number_is_known_by_its_machine(world):
    job = world.submit(1)
    volunteer = world.volunteer("Ida")
    volunteer.call()
    hostid, volunteer.hostid, names = volunteer.hostid, 0, list(volunteer.held)
    volunteer.held.clear()
    volunteer.call(wants=0.0)
    assert volunteer.hostid == hostid and list(volunteer.held) == names
    volunteer.finish(names[0])
    volunteer.call(wants=0.0)
    assert job.wait(30)["tasks"]["done"] == 1


def test_a_client_that_was_restored_from_a_backup_goes_on(world):
    """It reports what it has reported before, and lists what it had then: that is ended, and new work comes."""
    job = world.submit(2)
    volunteer = world.volunteer("Jan")
    volunteer.call()
    old = dict(volunteer.held)
    volunteer.work()
    world.submit(1)
    volunteer.held, volunteer.seqno = dict(old), 0
    answer = volunteer.call()
    assert "<result_abort>" in answer and not set(old) & set(volunteer.held)
    assert job.wait(30)["tasks"]["done"] == 2 and volunteer.held


def test_two_clients_with_one_id_share_what_the_host_has(world):
    job = world.submit(4)
    first = world.volunteer("Kim")
    first.call()
    clone = FakeVolunteer(first.url, first.key, first.cpid)
    clone.hostid = first.hostid
    for _ in range(10):
        if clone.work() + first.work() == 0:
            break
    assert job.wait(30)["tasks"]["done"] == 4


def test_preferences_are_replaced_only_for_who_agreed(world):
    key = world.client.tell_front("boinc", "add-account", name="Una", while_busy=True)["key"]
    agreed = FakeVolunteer(world.url, key, "a" * 32).call(wants=0.0)
    assert tag(agreed, "suspend_cpu_usage") == ["0"]
    assert "global_preferences" not in world.volunteer("Vic").call(wants=0.0)


def test_report_deadlines_are_told_by_the_clock_of_the_client(world):
    year_s, day_s, left_s = 365 * 86400.0, 86400.0, []
    for ahead_s in (0.0, year_s, -year_s):
        job = world.submit(1)
        volunteer = world.volunteer("Wim")
        volunteer.clock_ahead_s = ahead_s
        (due,) = tag(volunteer.call(), "report_deadline")
        left_s.append(float(due) - time.time() - ahead_s)
        job.cancel()
    # A week, or a day where other tests of this server have taught it that results come at once.
    assert max(left_s) - min(left_s) < 60
    assert min(abs(left_s[0] - 7 * day_s), abs(left_s[0] - day_s)) < 60


def test_clients_of_other_platforms_are_told_so_and_get_nothing(world):
    world.submit(1)
    volunteer = world.volunteer("Zoe")
    other = volunteer.request().replace(b"x86_64-pc-linux-gnu", b"windows_x86_64")
    answer = post(world.url + "cgi", other).decode()
    assert "x86_64-pc-linux-gnu alone, not for windows_x86_64" in answer and "<workunit>" not in answer
    also = b"<alt_platform>\n        <name>x86_64-pc-linux-gnu</name>\n    </alt_platform>\n<host_info>"
    assert "<workunit>" in post(world.url + "cgi", other.replace(b"<host_info>", also, 1)).decode()


def test_what_was_cancelled_is_aborted(world):
    job = world.submit(1)
    volunteer = world.volunteer("Leo")
    volunteer.call()
    job.cancel()
    assert "<result_abort>" in volunteer.call(wants=0.0) and not volunteer.held


def test_short_tasks_are_bundled(world):
    job = world.submit(400, estimate="1s")
    volunteer = world.volunteer("Mia")
    volunteer.call()
    bundles = [read_name(name) for name in volunteer.held]
    assert max(bundle.count for bundle in bundles if bundle) > 3
    # The more volunteers are there, the smaller the share of what is left that one of them gets.
    for _ in range(400):
        if not volunteer.work():
            break
    assert job.wait(30)["tasks"]["done"] == 400


def test_accounts_are_closed_without_an_invitation(world):
    def ask(page: str) -> str:
        return _get(world.url + page)

    made = "create_account.php?email_addr=n%40example%2Eorg&passwd_hash=01e23524c6607f042eb4c0c9bd7448f6&user_name=Nat"
    assert "<error_num>-208<" in ask(made)
    code = world.client.tell_front("boinc", "invite")["code"]
    (key,) = tag(ask(f"{made}&invite_code={code}"), "authenticator")
    assert "<error_num>-208<" in ask(f"{made}2&invite_code={code}")
    look = "lookup_account.php?email_addr=n%40example%2Eorg&passwd_hash="
    assert tag(ask(look + "01e23524c6607f042eb4c0c9bd7448f6"), "authenticator") == [key]
    assert "<error_num>-206<" in ask(look + "0" * 32)
    # Without a password it is asked whether the account exists.
    assert "<success/>" in ask(look) and "<error_num>-136<" in ask(look.replace("=n", "=m"))
    assert "<master_url>" in ask("get_project_config.php") and 'rel="boinc_scheduler"' in ask("")


def _get(url: str) -> str:
    import urllib.request

    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_names_are_shown_only_of_those_who_agreed(world):
    world.volunteer("Rita").call(wants=0.0)
    key = world.client.tell_front("boinc", "add-account", name="Sam", shows_name=True)["key"]
    FakeVolunteer(world.url, key, "e" * 32).call(wants=0.0)
    ads = [row["ad"] for row in world.client.hosts() if row["pool"] == "boinc"]
    assert {ad.get("volunteer") for ad in ads} == {None, "Sam"} and {ad.get("name") for ad in ads} == {None, "fake"}
    told = _volunteers(world)
    assert {row["name"] for row in told} == {"", "Sam"} and len(told) > 2


def _volunteers(world) -> list[dict]:
    """As the console's page of volunteers is told them."""
    rows: list[dict] = world.client._transport.get("/v1/volunteers")["volunteers"]
    return rows


def test_credit_is_shown_of_each_host_and_each_volunteer(world):
    job = world.submit(2, quorum=2)
    ann, ben = world.volunteer("Ann"), world.volunteer("Ben")
    assert ann.work() == ben.work() == 2
    job.wait(30)
    rows = {row["host"]: row["volunteer"] for row in world.client.hosts() if row["volunteer"]}
    hosts = [rows[f"boinc-{number}-{one.cpid}"] for number, one in _numbered(world, ann, ben)]
    assert [host["confirmed_in_a_row"] for host in hosts] == [2, 2] and hosts[0]["credit"] == hosts[1]["credit"] > 0
    accounts = {number for number, _ in _numbered(world, ann, ben)}
    people = [row for row in _volunteers(world) if row["account"] in accounts]
    assert [(row["done"], row["hosts"], row["credit"] > 0) for row in people] == [(2, 1, True)] * 2


def _numbered(world, *volunteers: FakeVolunteer) -> list[tuple[int, FakeVolunteer]]:
    rows = world.client.tell_front("boinc", "show")["accounts"]
    return list(zip([row["account"] for row in rows][-len(volunteers) :], volunteers, strict=True))


def test_a_stranger_gets_nothing(world):
    world.submit(1)
    stranger = FakeVolunteer(world.url, "0" * 32, "f" * 32)
    answer = stranger.call()
    assert "does not know this account key" in answer and not stranger.held and not stranger.hostid


def test_mutated_messages_are_refused_and_leave_nothing(world):
    """No traceback, no acceptance, no growth: neither of a job, nor of the folder of uploads."""
    job = world.submit(3)
    volunteer = world.volunteer("Olga")
    volunteer.call()
    name = next(iter(volunteer.held))
    volunteer.reports[name] = RESULT.format(name=name, state=5, exit=0, stderr="x", file="")
    request = volunteer.request(wants=0.0)
    data = volunteer.archive(name)
    upload = (
        f"<data_server_request>\n<file_upload>\n<file_info>\n<name>{name}_0</name>\n<xml_signature>\n"
        f"{volunteer.held[name]}\n</xml_signature>\n<max_nbytes>{256 << 20}</max_nbytes>\n</file_info>\n"
        f"<nbytes>{len(data)}</nbytes>\n<md5_cksum>{hashlib.md5(data).hexdigest()}</md5_cksum>\n<offset>0</offset>\n"
        "<data>\n"
    ).encode() + data
    key = volunteer.key.encode()
    chance = random.Random(7)
    hosts = len(world.client.hosts())
    for number in range(MUTATIONS):
        is_upload = number % 2 == 0
        changed = mutated(upload if is_upload else request.replace(key, b"0" * 32), chance)
        if is_upload and changed == upload:
            continue
        try:
            answer = post(world.url + ("file_upload_handler" if is_upload else "cgi"), changed)
        except urllib.error.HTTPError as error:
            assert error.code == 400, error.code
            error.close()
            continue
        if is_upload:
            assert tag(answer.decode(), "status") != ["0"] or whole(changed, upload, data), changed
        else:
            assert b"<result_ack>" not in answer and b"<workunit>" not in answer
    assert job.status()["tasks"]["done"] == 0 and len(world.client.hosts()) == hosts
    left = list((world.cluster.state / "pools" / "boinc" / "uploads").iterdir())
    assert len(left) <= 2 and sum(path.stat().st_size for path in left) <= 2 * len(data)
    log = (world.directory / "server.log").read_text()
    assert "Traceback" not in log


def whole(changed: bytes, upload: bytes, data: bytes) -> bool:
    """Whether a mutation left name, certificate, sizes and bytes alone, or only asks for the size of a file."""
    return changed.endswith(b"<data>\n" + data) or b"get_file_size" in changed


def mutated(message: bytes, chance: random.Random) -> bytes:
    changed = bytearray(message)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            changed[at:at] = chance.randbytes(chance.randint(1, 8))
        elif kind == 1:
            del changed[at : at + chance.randint(1, 40)]
        elif kind == 2 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif kind == 3:
            changed[at:at] = changed[at : at + chance.randint(1, 200)]
        else:
            changed[at:at] = chance.choice([b"<result>\n", b"</result>\n", b"<data>\n", b"&#0;", b"9" * 30, b"<!--"])
    return bytes(changed)


def test_the_key_changes_and_clients_are_told(world):
    shown = world.client.tell_front("boinc", "show")
    again = world.client.tell_front("boinc", "rotate")
    assert again["key"] != shown["key"] and again["launcher"]["version"] == shown["launcher"]["version"] + 1
    volunteer = world.volunteer("Pia")
    body = volunteer.request().replace(
        b"<host_info>", b"    <code_sign_key>\n" + shown["key"].encode() + b"\n</code_sign_key>\n<host_info>"
    )
    answer = post(world.url + "cgi", body).decode()
    assert again["key"] in answer and "<code_sign_key_signature>" in answer


def test_the_server_comes_back_with_all_that_it_acknowledged(world):
    cancelled, other = world.submit(1), world.volunteer("Tom")
    other.call()
    (dropped,) = other.held
    other.finish(dropped)
    cancelled.cancel()
    job = world.submit(2)
    volunteer = world.volunteer("Quin")
    volunteer.call()
    names = list(volunteer.held)
    volunteer.finish(names[0])
    world.cluster.kill_server()
    world.cluster.start_server()
    left = [path.name for path in (world.cluster.state / "pools" / "boinc" / "uploads").iterdir()]
    assert f"{names[0]}_0" in left and f"{dropped}_0" not in left
    volunteer.call(wants=0.0)
    while volunteer.work():
        pass
    assert job.wait(30)["tasks"]["done"] == 2

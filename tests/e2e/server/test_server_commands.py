"""A server, a worker and people with tokens, each a process of its own, all typed as commands."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.request

import pytest

from tests.support.commands.typed import Shell


class Site:
    """A running server with one worker, and a shell in which WINDFALL_SERVER and WINDFALL_TOKEN are set."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.server = shell.start("server", "--listen", "127.0.0.1:0", "--state", "kept", "--json")
        assert self.server.stdout is not None
        self.url = json.loads(self.server.stdout.readline())["url"]
        self.admin = (shell.directory / "kept/token").read_text().strip()
        shell.env |= {"WINDFALL_SERVER": self.url, "WINDFALL_TOKEN": self.admin}
        self.worker = shell.start("worker", "--slots", "2", "--name", "w1", "--dir", str(shell.directory / "w1"))

    def token(self, role: str) -> str:
        ended = self.shell.windfall("token", "create", "--role", role, "--name", f"a {role}")
        assert ended.code == 0, ended
        return ended.out.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("site"))
    made = Site(shell)
    yield made
    ended = [shell.finish(process, signal.SIGTERM, between_s=0.0) for process in (made.worker, made.server)]
    shell.close()
    assert [process.code for process in ended] == [0, 0], ended


def test_it_says_that_it_is_well(site):
    with urllib.request.urlopen(f"{site.url}/healthz") as answer:
        said = json.load(answer)
    assert said["ok"] is True


def test_submit_prints_the_number_and_wait_says_how_it_ended(site):
    ended = site.shell.windfall("submit", "--range", "1-5", "--name", "five", "--", "echo", "{}")
    assert ended.code == 0, ended
    job = ended.out.strip()
    assert job.isdecimal()
    ended = site.shell.windfall("wait", job, "--timeout", "60s", "--json")
    assert (ended.code, ended.document["tasks"]["done"]) == (0, 5)
    assert len(site.shell.windfall("results", "five", "--json").lines) == 5


def test_wait_stops_at_the_failures_that_were_asked_for(site):
    site.shell.windfall(
        "submit", "--range", "0-20", "--max-failures", "1", "--name", "w", "--", "sh", "-c", "sleep {}; exit 1"
    )
    ended = site.shell.windfall("wait", "w", "--until", "failed:1", "--json")
    assert ended.code == 1
    assert ended.document["state"] == "running"
    assert site.shell.windfall("cancel", "w", "--json").document["cancelled"] > 0


def test_wait_gives_up_in_time(site):
    site.shell.windfall("submit", "--range", "1-1", "--name", "long", "--", "sleep", "60")
    ended = site.shell.windfall("wait", "long", "--timeout", "0.3s")
    assert ended.code == 4
    assert "'long' is running after 0.3s" in ended.err
    site.shell.windfall("cancel", "long")


def test_wait_says_that_a_job_is_paused(site):
    site.shell.windfall("submit", "--range", "1-1", "--name", "rests", "--", "sleep", "60")
    site.shell.windfall("change", "rests", "--pause")
    ended = site.shell.windfall("wait", "rests", "--timeout", "0.3s")
    assert ended.code == 4
    assert "is paused; continue: windfall change" in ended.err
    site.shell.windfall("cancel", "rests")


def test_output_can_be_watched_while_a_task_runs(site):
    script = "echo first; sleep 1.5; echo second"
    site.shell.windfall("submit", "--range", "1-1", "--name", "talk", "--", "sh", "-c", script)
    ended = site.shell.windfall("logs", "talk.0", "-f")
    assert (ended.code, ended.out) == (0, "first\nsecond\n")


def test_a_job_that_runs_can_be_changed(site):
    site.shell.windfall("submit", "--range", "1-50", "--name", "calm", "--", "sleep", "0.3")
    ended = site.shell.windfall("change", "calm", "--pause", "--priority", "7", "--memory", "1G", "--json")
    assert (ended.document["state"], ended.document["priority"]) == ("paused", 7.0)
    ended = site.shell.windfall("change", "calm", "--unpause", "--require", "Host.Memory > 1", "--json")
    assert ended.document["state"] == "running"
    ended = site.shell.windfall("change", "calm", "--require", "Host.Memry > 1")
    assert (ended.code, "did you mean" in ended.err) == (2, True)
    site.shell.windfall("cancel", "calm")


def test_status_watch_follows_to_the_end(site):
    site.shell.windfall("submit", "--range", "1-3", "--name", "seen", "--", "sleep", "0.2")
    ended = site.shell.windfall("status", "seen", "--watch", "--json")
    assert ended.code == 0, ended
    assert [line["state"] for line in ended.lines][-1] == "done"


def test_a_host_can_be_blocked_and_let_in_again(site):
    ended = site.shell.windfall("host", "block", "w1", "--reason", "looks odd", "--for", "1h", "--json")
    assert ended.document["blocked"]
    assert "w1" in site.shell.windfall("host", "list").out
    site.shell.windfall("submit", "--range", "1-1", "--name", "held", "--", "true")
    assert site.shell.windfall("wait", "held", "--timeout", "0.5s").code == 4
    assert not site.shell.windfall("host", "unblock", "w1", "--json").document["blocked"]
    assert site.shell.windfall("wait", "held", "--timeout", "60s").code == 0


def test_a_token_may_do_what_its_role_says_and_no_more(site):
    read, submit, worker = (site.token(role) for role in ("read", "submit", "worker"))
    assert site.shell.windfall("status", "--token", read).code == 0
    ended = site.shell.windfall("submit", "--token", read, "--range", "1-2", "--", "true")
    assert (ended.code, "may not do this" in ended.err) == (3, True)
    assert site.shell.windfall("submit", "--token", submit, "--range", "1-2", "--", "true").code == 0
    assert site.shell.windfall("token", "list", "--token", submit).code == 3
    assert site.shell.windfall("status", "--token", worker).code == 3
    assert site.shell.windfall("status", "--token", "wf_0_nonsense").code == 3


def test_a_revoked_token_is_worthless(site):
    token = site.token("read")
    ident = token.split("_")[1]
    assert ident in {row["id"] for row in site.shell.windfall("token", "list", "--json").document["tokens"]}
    assert site.shell.windfall("token", "revoke", ident).code == 0
    assert site.shell.windfall("status", "--token", token).code == 3


def test_the_token_file_is_its_owners_alone(site):
    assert (site.shell.directory / "kept/token").stat().st_mode & 0o777 == 0o600


def test_a_second_server_on_the_same_state_refuses(site):
    ended = site.shell.windfall("server", "--listen", "127.0.0.1:0", "--state", "kept")
    assert ended.code == 2
    assert "in use" in ended.err


def test_a_run_goes_to_the_server_that_was_named(site):
    ended = site.shell.windfall("run", "--range", "1-3", "--json", "--", "pwd")
    assert ended.code == 0, ended
    assert ended.document["tasks"]["done"] == 3
    for row in site.shell.windfall("results", "pwd", "--json").lines:
        assert row["stdout"].startswith(str(site.shell.directory / "w1")), "it has a directory of its own"


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    yield made
    made.close()


def test_beyond_this_machine_a_server_wants_a_token_to_be_there(shell):
    ended = shell.windfall("server", "--listen", "0.0.0.0:0")
    assert ended.code == 2
    assert "windfall token create" in ended.err
    assert shell.windfall("token", "create", "--role", "worker").code == 0
    server = shell.start("server", "--listen", "0.0.0.0:0", "--json")
    assert server.stdout is not None
    assert json.loads(server.stdout.readline())["url"].startswith("http://0.0.0.0:")
    assert shell.finish(server, signal.SIGTERM).code == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make a certificate")
def test_with_a_certificate_it_speaks_https(shell):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days",
         "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        cwd=shell.directory, check=True, capture_output=True,
    )  # fmt: skip
    server = shell.start(
        "server", "--listen", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--json"
    )
    assert server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    assert url.startswith("https://")
    token = (shell.directory / ".windfall/token").read_text().strip()
    ended = shell.windfall("status", "--server", url, "--token", token)
    assert ended.code == 3
    assert "SSL_CERT_FILE" in ended.err
    shell.env["SSL_CERT_FILE"] = str(shell.directory / "cert.pem")
    assert shell.windfall("status", "--server", url, "--token", token).code == 0
    worker = shell.start(
        "worker", "--server", url, "--token", token, "--cafile", "cert.pem", "--slots", "1", "--dir", "w",
    )  # fmt: skip
    assert shell.windfall("run", "--server", url, "--token", token, "--range", "1-2", "--", "true").code == 0
    assert shell.finish(worker, signal.SIGTERM).code == 0
    assert shell.finish(server, signal.SIGTERM).code == 0


def test_commands_find_the_server_of_the_state_directory_by_themselves(shell):
    server = shell.start("server", "--listen", "127.0.0.1:0", "--json")
    shell.eventually(lambda: (shell.directory / ".windfall/server.json").exists())
    ended = shell.windfall("submit", "--range", "1-2", "--", "true")
    assert ended.code == 0, ended
    assert "windfall status 1" in ended.err
    assert "2 tasks" in shell.windfall("status", "last").out
    assert shell.finish(server, signal.SIGINT).code == 0

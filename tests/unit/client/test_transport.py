"""Requests: kept connections, errors as ours, patience."""

from __future__ import annotations

import socket

import pytest

from tests.support.server.stub_server import StubServer, as_json, error
from windfall.client.transport import Frame, Transport, error_of
from windfall.errors import BadCredentials, BadInput, Unreachable, WindfallError
from windfall.wire import frames


@pytest.fixture
def connect():
    """Makes transports that are closed in the end."""
    made = []

    def make(*args, **kwargs):
        made.append(Transport(*args, **kwargs))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_requests_in_a_row_use_one_connection(connect):
    with StubServer(lambda *_: as_json(200, {"ok": True})) as server:
        transport = connect(server.url, "t")
        for _ in range(5):
            assert transport.get("/v1/jobs") == {"ok": True}
        assert len(server.connections) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(connect):
    with StubServer(lambda *_: as_json(200, {})) as server:
        transport = connect(server.url)
        transport.get("/a")
        transport._idle[0].sock.shutdown(socket.SHUT_RDWR)
        assert transport.get("/b") == {}
        assert [path for _, path in server.asked] == ["/a", "/b"]


def test_a_servers_error_arrives_with_its_code_message_and_hint(connect):
    answer = error(404, "no-such-job", "there is no job 'x'", "see the jobs: windfall status")
    with StubServer(lambda *_: answer) as server, pytest.raises(BadInput) as caught:
        connect(server.url).get("/v1/jobs/x")
    assert (caught.value.code, caught.value.exit_code) == ("no-such-job", 2)
    assert str(caught.value) == "there is no job 'x'\n  see the jobs: windfall status"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_exit_code_3(status):
    made = error_of(status, error(status, "bad-token", "the server does not know this token")[1], "http://x")
    assert isinstance(made, BadCredentials)
    assert made.exit_code == 3
    assert made.hint


def test_an_answer_that_is_not_ours_is_quoted():
    made = error_of(500, b"<html>proxy</html>", "http://x:1")
    assert isinstance(made, WindfallError)
    assert "http://x:1 answered 500" in made.message
    assert "proxy" in made.message


def test_an_address_without_a_server_is_unreachable_and_named(connect):
    url = f"http://127.0.0.1:{closed_port()}"
    with pytest.raises(Unreachable) as caught:
        connect(url).get("/healthz")
    assert url in caught.value.message
    assert "windfall server" in caught.value.hint
    assert caught.value.exit_code == 3


def test_with_patience_a_busy_server_is_asked_again_until_it_can(connect):
    answers = [error(503, "store-full", "no space", retryable=True)] * 2 + [as_json(200, {"ok": 1})]
    with StubServer(lambda *_: answers.pop(0)) as server:
        assert connect(server.url, patience_s=30).get("/x") == {"ok": 1}
        assert len(server.asked) == 3


def test_without_patience_a_busy_server_is_an_error_at_once(connect):
    with StubServer(lambda *_: error(503, "store-full", "no space", retryable=True)) as server:
        with pytest.raises(Unreachable) as caught:
            connect(server.url).get("/x")
        assert len(server.asked) == 1
    assert caught.value.code == "store-full"


def test_patience_is_not_wasted_on_an_error_that_stays(connect):
    with StubServer(lambda *_: error(400, "bad-input", "no")) as server:
        with pytest.raises(BadInput):
            connect(server.url, patience_s=30).get("/x")
        assert len(server.asked) == 1


def test_a_server_that_moved_is_found_again(connect):
    with StubServer(lambda *_: as_json(200, {"new": True})) as server:
        gone = f"http://127.0.0.1:{closed_port()}"
        transport = connect(gone, "old", patience_s=30, renew=lambda: (server.url, "new"))
        assert transport.get("/x") == {"new": True}
        assert (transport.url, transport.token) == (server.url, "new")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port", "http://x:99999"])
def test_an_address_that_is_none_is_bad_input(url):
    with pytest.raises(BadInput, match="no server's address"):
        Transport(url)


def test_a_token_with_a_line_break_is_refused_before_it_is_sent():
    with pytest.raises(BadInput, match="token"):
        Transport("http://x", "wf_a\nb")


def test_a_frame_is_cut_into_its_attachments():
    frame = Frame(frames.join(b'{"rows": [2, 3]}', [b"ab", b"cde"]))
    assert [bytes(frame.take(n)) for n in frame.header["rows"]] == [b"ab", b"cde"]


def test_exists_tells_a_404_from_an_error(connect):
    with StubServer(lambda method, path, body: (200 if path.endswith("a") else 404, b"")) as server:
        transport = connect(server.url)
        assert transport.exists("/v1/blobs/a")
        assert not transport.exists("/v1/blobs/b")


def test_of_several_addresses_the_next_is_asked_when_one_is_silent_or_a_standby(connect):
    standby = error(503, "standby", "this server is a standby", retryable=True)
    with StubServer(lambda *_: standby) as second, StubServer(lambda *_: as_json(200, {"ok": True})) as third:
        transport = connect(f"http://127.0.0.1:{closed_port()},{second.url},{third.url}", "t")
        assert transport.get("/a") == {"ok": True}, "without patience, each is asked once"
        assert transport.get("/b") == {"ok": True}
        assert [path for _, path in second.asked] == ["/a"], "the one that answered is asked first"
        assert [path for _, path in third.asked] == ["/a", "/b"]


def test_of_several_addresses_that_are_all_silent_the_last_failure_is_told(connect):
    urls = [f"http://127.0.0.1:{closed_port()}" for _ in range(2)]
    with pytest.raises(Unreachable, match="no server answers"):
        connect(",".join(urls)).get("/a")


def test_an_error_that_is_no_silence_is_not_asked_for_elsewhere(connect):
    with (
        StubServer(lambda *_: error(404, "no-such-job", "no")) as first,
        StubServer(lambda *_: as_json(200, 1)) as other,
    ):
        with pytest.raises(BadInput, match="no"):
            connect(f"{first.url},{other.url}").get("/a")
        assert other.asked == []


def test_each_of_several_addresses_is_checked(connect):
    with pytest.raises(BadInput, match="no server's address"):
        connect("http://a:1,ftp://b")

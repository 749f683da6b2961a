"""Tasks that take whole hosts, with real workers: the processes find each other, and all of them run or none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.server.cluster import cluster

MEET = """
import os, socket, sys, time
rank, nodes = int(os.environ["WINDFALL_NODE_RANK"]), int(os.environ["WINDFALL_NODES"])
there = (os.environ["WINDFALL_HEAD"], int(os.environ["WINDFALL_HEAD_PORT"]))
with open(os.environ["WINDFALL_NODE_FILE"]) as file:
    addresses = file.read().split()
assert addresses == os.environ["WINDFALL_NODE_LIST"].split(",") and len(addresses) == nodes
assert os.path.isdir(os.path.dirname(sys.argv[1]))
open(f"{sys.argv[1]}.{os.environ['WINDFALL_ATTEMPT']}", "w").close()
if rank:
    for _ in range(200):
        try:
            with socket.create_connection(there, 10) as line:
                line.sendall(b"%d" % rank)
                line.recv(1)
            break
        except OSError:
            time.sleep(0.05)
    else:
        sys.exit("the host of rank 0 does not answer")
else:
    door = socket.create_server(there)
    lines = [door.accept()[0] for _ in range(nodes - 1)]
    print(sorted(int(line.recv(9)) for line in lines), os.environ["WINDFALL_HOST"])
    with open("ring.txt", "w") as file:
        file.write("all met")
    for line in lines:
        line.sendall(b".")
"""


@pytest.fixture
def made(tmp_path: Path):
    (tmp_path / "site").mkdir()
    with cluster(tmp_path / "site", lease_s=5.0) as found:
        found.start_server()
        (tmp_path / "meet.py").write_text(MEET)
        found.tmp = tmp_path
        yield found


def wait_for(holds, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def begun(made, name: str = "ring") -> list[str]:
    return sorted(path.name for path in made.tmp.glob(f"{name}.*"))


def test_four_processes_on_four_hosts_meet_without_ssh_and_begin_only_together(made):
    client = made.client()
    for name in ("a", "b", "c"):
        made.start_worker(name)
    job = client.submit(f"python3 {made.tmp}/meet.py {made.tmp}/ring", [0], nodes=4, outputs=["ring.txt"], name="ring")
    wait_for(lambda: len(client.hosts()) == 3)
    told = job.explain()
    assert "pool default has 3 hosts for it; asked for: 4 at once" in str(told), told
    assert not begun(made), "none begins before all can"
    made.start_worker("d")
    job.wait(timeout=60)
    (result,) = job.results()
    assert result.stdout.startswith("[1, 2, 3] "), result
    assert (job.status()["attempts"], job.status()["parts"]) == (4, 3)
    assert result.ok and begun(made) == [f"ring.{number}" for number in (1, 2, 3, 4)]
    assert [row[0] for row in result.outputs] == ["ring.txt"], "the files of a task are those of rank 0"


def test_a_lost_host_ends_the_attempt_on_the_others_and_it_is_tried_again(made):
    client = made.client()
    for name in ("a", "b"):
        made.start_worker(name)
    (made.tmp / "hold.py").write_text(
        "import os, sys, time\n"
        "open(f\"{sys.argv[1]}.{os.environ['WINDFALL_ATTEMPT']}.{os.environ['WINDFALL_HOST']}\", 'w').close()\n"
        "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)\n"
    )
    job = client.submit(f"python3 {made.tmp}/hold.py {made.tmp}/held", [0], nodes=2, grace="1s")
    wait_for(lambda: len(begun(made, "held")) == 2)
    made.kill_worker("a")
    made.start_worker("c")
    wait_for(lambda: {"b", "c"} <= {name.rsplit(".", 1)[1] for name in begun(made, "held")})
    (made.tmp / "held").touch()
    job.wait(timeout=60)
    (result,) = job.results()
    assert result.ok and job.status()["parts"] * 2 == job.status()["attempts"]
    began = {name.split(".")[2] for name in begun(made, "held") if name.split(".")[1] not in ("1", "2")}
    assert began == {"b", "c"}, "the second attempt runs on hosts that are there"
    made.stop_server()
    assert made.accepted() == {(job.id, 0): 1}


def test_a_call_on_two_hosts_gives_the_value_of_rank_0(made):
    def rank() -> str:
        import os

        return f"{os.environ['WINDFALL_NODE_RANK']} of {os.environ['WINDFALL_NODES']}"

    for name in ("a", "b"):
        made.start_worker(name)
    job = made.client().submit(rank, params=[(), ()], nodes=2)
    assert [result.result() for result in job.results()] == ["0 of 2", "0 of 2"]


def test_a_task_has_the_whole_host_to_itself(made):
    (made.tmp / "alone").mkdir()
    place = f"{made.tmp}/alone/now"
    alone = ["sh", "-c", f"mkdir {place} || exit 4; sleep 0.2; rmdir {place}"]
    made.start_worker("a", slots=4)
    client = made.client()
    whole = client.submit(alone, range(3), nodes=1, max_failures=1)
    others = client.submit(["sh", "-c", f"test ! -e {place}"], range(20), max_failures=1)
    for job in (whole, others):
        job.wait(timeout=60)
        assert job.status()["state"] == "done", job.status()

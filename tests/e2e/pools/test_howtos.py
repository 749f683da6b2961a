"""The how-tos of the kinds of pools, typed by a new user: the pages' own files and commands, and what they print."""

from __future__ import annotations

import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands.reader import ROOT, Reader
from tests.support.ec2 import IMAGE, toml
from tests.support.ec2.world import priced_cloud
from tests.support.pools.slurm import cluster
from tests.support.pools.sshd import sshd

Opener = Callable[..., Reader]


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[Opener]:
    made: list[Reader] = []

    def begin(page: str, instead: dict[str, str] | None = None) -> Reader:
        (tmp_path / "reader").mkdir()
        made.append(Reader(tmp_path / "reader", page, instead))
        return made[-1]

    yield begin
    for reader in made:
        reader.leaves()


def same_head(expected: list[str], got: str) -> bool:
    """Whether two tables have the same columns: the numbers in them differ from run to run."""
    return expected[0].split() == got.splitlines()[0].split()


def test_pools(reads: Opener):
    reader = reads("pools")
    reader.file("pools.toml")
    (serve, _), (listing, table) = reader.block(0)
    reader.types(serve)
    got = reader.types(listing)
    assert same_head(table, got) and [row.split()[0] for row in table] == [row.split()[0] for row in got.splitlines()]
    add, pause, resume, drain, remove = reader.block(2)
    reader.follows(*add)
    for command, _ in (pause, resume, drain, remove):
        reader.types(command)
    assert "lab" not in reader.types(listing)
    assert "here works" in reader.types("windfall pool doctor here")
    reader.leaves()
    (reader.folder / "tasks.txt").write_text("true\ntrue\n")
    ((run, _),) = reader.block(1)
    assert "2 tasks: 2 done" in reader.types(run)
    assert "here works" in reader.types("windfall pool doctor here --pools pools.toml")


def test_command(reads: Opener):
    reader = reads("command")
    shutil.copytree(ROOT / "examples" / "pools", reader.folder / "examples" / "pools")
    on_the_page = reader.here(re.findall(r"```toml\n# .*?\n(.*?)```", reader.page.read_text(), re.DOTALL)[0])
    assert on_the_page in (reader.folder / "examples/pools/processes/pools.toml").read_text()
    (doctor, said), (run, _) = reader.block(0)
    reader.follows(doctor, said)
    assert "100 tasks: 100 done" in reader.types(run)


def test_ssh(reads: Opener, tmp_path: Path):
    with sshd(tmp_path / "sshd") as hosts:
        mine = f"Python {platform.python_version()}"
        reader = reads("ssh", {"Python 3.8.18": mine, "ssh -o": f"ssh -F {hosts.config} -o"})
        reader.instead |= {'"me@node3.example.org"': '"refused"', "node2: me@node2": "refused: root@127.0.0.1"}
        ((login, version),) = reader.block(0)
        reader.follows(login.replace("python3", sys.executable), version)
        more = f'config = "{hosts.config}"\nfolder = "{hosts.home}"\npython = "{sys.executable}"\n'
        reader.file("pools.toml", more=more)
        for command, _ in reader.block(1):
            reader.types(command)
        ((doctor, said),) = reader.block(2)
        got = reader.types(doctor, exit_code=1)
        head, wrong = said[:3], [line.replace("node2", "refused") for line in said[3:]]
        told = [line.replace("~/.windfall-pool", str(hosts.home)) for line in head]
        told = [line.replace("head.example.org:7272", f"127.0.0.1:{reader.port}") for line in told]
        assert [line for line in told if line not in got.splitlines()] == []
        assert [line for line in wrong if line not in got.splitlines()] == [], got
        program(reader)
        reader.types(f"{step(reader, 5)} && windfall wait last")
        assert "lab" in reader.types("windfall pool list") and "lab-" in reader.types("windfall host list")


def program(reader: Reader, name: str = "simulate") -> None:
    """What the pages call by a name of the user's own."""
    (reader.folder / name).write_text("#!/bin/sh\necho $1\n")
    (reader.folder / name).chmod(0o755)


def step(reader: Reader, number: int) -> str:
    """The command that stands in the text of a step."""
    found: str = re.findall(rf"\*\*{number}\. .*?`(windfall submit .*?)`", reader.page.read_text())[0]
    return found.replace("1-1000", "1-10")


def test_slurm(reads: Opener, tmp_path: Path):
    with cluster(tmp_path / "slurm"):
        # The cluster of one machine that the page offers has no partition `short`: the doctor must say so, as it does.
        reader = reads("slurm", {"/home/me/windfall/bcc170e210b4": "..."})
        (_, _), (version, said) = reader.block(0)
        reader.follows(version, said)
        reader.instead["http://login1:7272"] = f"http://127.0.0.1:{reader.port}"
        more = f'python = "{sys.executable}"\nidle_exit = "5s"\n'
        reader.file("pools.toml", more=more)
        token, (serve, _) = reader.block(1)
        reader.types(token[0])
        reader.types(serve)
        ((doctor, said),) = reader.block(2)
        reader.follows(doctor, said, exit_code=1)
        reader.leaves()
        reader.instead |= {'partition = "short"': 'partition = "main"', 'account = "physics"\n': ""}
        reader.file("pools.toml", more=more)
        reader.types(serve)
        assert "pool cluster works" in reader.types(f"{doctor} --wait 2m")
        program(reader)
        reader.types(f"{step(reader, 5)} && windfall wait last")
        assert "cluster-" in reader.types("windfall host list")


def test_ec2(reads: Opener, tmp_path: Path):
    with priced_cloud(tmp_path / "ec2") as cloud:
        reader = reads("ec2")
        reader.instead["0.0.0.0:7272"] = f"0.0.0.0:{reader.port}"
        # Regions, types and images are those of the cloud that is here; boto3 looks where its variables say.
        reader.instead |= {'"c7g.*", "m7g.large"': '"c5.larg*"', "ami-0123456789abcdef0": IMAGE}
        reader.instead |= {"eu-central-1": "us-east-1", 'security_groups = ["sg-0123456789abcdef0"]': ""}
        reader.env |= cloud.environment
        quick = {key: value for key, value in cloud.settings().items() if key not in ("types", "image", "regions")}
        quick["server"] = f"http://127.0.0.1:{reader.port}"
        reader.file("pools.toml", more="".join(f"{key} = {toml(value)}\n" for key, value in quick.items()))
        (token, _), (serve, _), (doctor, said) = reader.block(1)
        reader.types(token)
        reader.types(serve)
        told = [re.sub(r"arn:\S*", "...", line) for line in said]
        told = [re.sub(r"\d+ offers of .*", "...", line).replace("c7g.2xlarge", "c5.large") for line in told]
        told = [line.replace("10.0.0.5:7272", f"127.0.0.1:{reader.port}") for line in told]
        reader.follows(doctor, told)
        (reader.folder / "tasks.txt").write_text("1\n2\n3\n")
        program(reader)
        plan, submit, machines, cost = reader.block(2)
        assert "c5.large" in reader.types(plan[0])
        reader.types(f"{submit[0]} && windfall wait last")
        reader.types(machines[0])
        assert "$" in reader.types(cost[0])
        asked = plan[0].replace("--pool cloud", "--pools pools.toml --pool cloud")
        reader.types(asked)


def test_site(reads: Opener):
    reader = reads("site")
    reader.types("windfall server --listen 0.0.0.0:7272".replace("0.0.0.0:7272", f"127.0.0.1:{reader.port}"))
    ((create, said),) = reader.block(0)
    reader.follows(create, said)
    assert "no agent speaks to this server" in reader.types("windfall pool doctor lab", exit_code=1)
    curl, agent = (line for line, _ in reader.block(0, "sh"))
    reader.types(curl)
    token = reader.types("windfall token create --role worker").split()[-1]
    agent = agent.replace("WINDFALL_TOKEN=...", f"env WINDFALL_TOKEN={token}").replace("--vcpu 8", "--vcpu 5")
    reader.types(f"{agent} --name site-{reader.port} &")
    reader.until("windfall site info lab", f"site-{reader.port}")
    assert "1 host offered to the site" in reader.types("windfall pool doctor lab")
    program(reader, "serve")
    ((request, _),) = reader.block(1, "sh")
    request = request.replace("--for 2h", f"--for 2h --cwd {reader.folder}")
    assert f"site-{reader.port}" in reader.types(request)
    assert "--port" in reader.types(request.replace("--for 2h", "--for 2h --wait"))
    for command in ("list", "info", "info lab", "requests", "requests --in ended", "why last", "output last"):
        assert reader.types(f"windfall site {command}")
        reader.types(f"windfall site {command} --json")


def test_cloud(reads: Opener):
    reader = reads("cloud")
    reader.file("cloud.toml")
    example = tomllib.loads((ROOT / "examples" / "cloud.toml").read_text())
    assert tomllib.loads((reader.folder / "cloud.toml").read_text()) == example
    (reader.folder / "sim").write_text("#!/bin/sh\nsleep 0.1\n")
    (reader.folder / "sim").chmod(0o755)
    ((run, _),) = reader.block(0)
    assert "40 tasks: 40 done" in reader.types(run)
    reader.types("windfall server --pools cloud.toml --listen 127.0.0.1:0")
    reader.types("windfall submit --deadline 10m --pool cloud --estimate 30s --range 1-4 -- sleep 30")
    (listing, offers), (machines, table), (poke, said) = reader.block(1)
    assert same_head(offers, reader.types(listing))
    got = reader.until(machines, "running")
    assert same_head(table, got)
    name = next(line.split()[0] for line in got.splitlines() if "running" in line)
    hibernate = poke.replace("m1", name).replace("resume", "hibernate")
    assert reader.types(hibernate).split()[-1] == "hibernate"
    assert reader.types(poke.replace("m1", name)).split()[-1] == said[0].split()[-1] == "resume"
    reader.types("windfall cancel last")
    reader.until(machines, "no machines are rented")  # a server that stops leaves its machines as they are

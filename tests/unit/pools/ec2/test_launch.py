"""What is asked of EC2 for an order, what the machine will run, and settings that are refused."""

from __future__ import annotations

import email
import subprocess
from pathlib import Path

import msgspec
import pytest

from windfall.errors import BadInput
from windfall.pools.config import read_pools
from windfall.pools.contract import INVALID, Order, PoolError
from windfall.pools.ec2.catalogue import InstanceType, Rentable
from windfall.pools.ec2.launch import client_token, launch_arguments, unreachable
from windfall.pools.ec2.settings import Ec2Settings, launch_template
from windfall.pools.ec2.userdata import MOST_BYTES
from windfall.pools.kinds import Place, PoolConfig
from windfall.pools.starting.secrets import ticket
from windfall.server.pool_tokens import PoolTokens
from windfall.worker import metadata

ROOT = Path(__file__).parents[4]
OF_POOL = PoolTokens(b"k" * 32).make("cloud", 60.0, 0.0)
TOKEN = ticket(OF_POOL, "cloud-m7")


def rentable(market: str = "spot", **other: object) -> Rentable:
    return Rentable(InstanceType("c7g.large", 2, 4.0, gpus=1), "r1", "r1a", market, **{"image": "ami-1", **other})


def arguments(
    tmp_path: Path, each: Rentable | None = None, cafile: str = "", host: str = "cloud-m7", **other: object
) -> dict:
    (tmp_path / "token").write_text(OF_POOL + "\n")
    settings = Ec2Settings(**{"types": ["c7g.*"], "image": "ami-1", **other})
    pool = PoolConfig("cloud", "ec2", settings=settings)
    place = Place("http://10.0.0.5:7272", tmp_path / "token", tmp_path, cafile, owner="me")
    found = launch_arguments(pool, place, Order(host, 2, 7, None), each or rentable())
    assert not isinstance(found, PoolError), found
    return found


def script(found: dict) -> str:
    parts = [part for part in email.message_from_string(found["UserData"]).walk() if not part.is_multipart()]
    assert [part.get_content_type() for part in parts] == ["text/cloud-config", "text/x-shellscript"]
    return str(parts[1].get_payload())


def test_a_spot_machine_carries_our_tags_and_a_client_token_that_follows_from_its_name(tmp_path):
    found = arguments(tmp_path, tags={"project": "tides"})
    for specification in found["TagSpecifications"]:
        tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        assert tags.items() >= {"windfall:state": "me", "windfall:pool": "cloud", "windfall:host": "cloud-m7"}.items()
        assert tags["project"] == "tides"
    kinds = [specification["ResourceType"] for specification in found["TagSpecifications"]]
    assert kinds == ["instance", "volume", "spot-instances-request"]
    assert found["ClientToken"] == arguments(tmp_path)["ClientToken"] == client_token("me", "cloud", "cloud-m7")
    others = [client_token("you", "cloud", "cloud-m7"), client_token("me", "cloud", "cloud-m8")]
    assert found["ClientToken"] not in others and len(found["ClientToken"]) <= 64
    assert found["MetadataOptions"]["HttpTokens"] == "required"


@pytest.mark.parametrize(
    ("interruption", "kind", "shutdown"),
    [("terminate", "one-time", "terminate"), ("stop", "persistent", "stop"), ("hibernate", "persistent", "stop")],
)
def test_the_kind_of_interruption_is_asked_for(tmp_path, interruption, kind, shutdown):
    found = arguments(tmp_path, interruption=interruption)
    options = found["InstanceMarketOptions"]["SpotOptions"]
    assert options == {"SpotInstanceType": kind, "InstanceInterruptionBehavior": interruption}
    assert found["InstanceInitiatedShutdownBehavior"] == shutdown
    assert ("HibernationOptions" in found) == (interruption == "hibernate")


def test_a_machine_on_demand_is_no_spot_machine_and_ends_itself(tmp_path):
    found = arguments(tmp_path, rentable("on-demand"), interruption="stop")
    assert "InstanceMarketOptions" not in found and found["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert [each["ResourceType"] for each in found["TagSpecifications"]] == ["instance", "volume"]


@pytest.mark.parametrize(
    ("settings", "url", "is_refused"),
    [
        ({}, "http://127.0.0.1:7272", True),
        ({}, "https://localhost:7272", True),
        ({}, "http://10.0.0.5:7272", False),
        ({"server": "http://head.example.org:7272"}, "http://127.0.0.1:7272", False),
        ({"endpoint": "http://127.0.0.1:5000"}, "http://127.0.0.1:7272", False),
        ({"endpoint": "https://ec2.example.org"}, "http://127.0.0.1:7272", True),
    ],
)
def test_no_machine_is_rented_that_would_take_itself_for_the_server(tmp_path, settings, url, is_refused):
    place = Place(url, tmp_path / "token", tmp_path)
    error = unreachable(Ec2Settings(types=["c7g.*"], **settings), place)
    assert (error is not None) == is_refused
    assert error is None or (error.kind == INVALID and "--listen" in error.error)


def test_place_image_and_template_are_passed_on(tmp_path):
    found = arguments(tmp_path, launch_template="base:3", security_groups=["sg-1"], key_name="k", instance_profile="p")
    assert found["LaunchTemplate"] == {"LaunchTemplateName": "base", "Version": "3"}
    assert (found["Placement"], found["ImageId"]) == ({"AvailabilityZone": "r1a"}, "ami-1")
    assert (found["SecurityGroupIds"], found["KeyName"], found["IamInstanceProfile"]) == (["sg-1"], "k", {"Name": "p"})
    assert launch_template("lt-1") == {"LaunchTemplateId": "lt-1", "Version": "$Default"}
    in_subnet = arguments(tmp_path, rentable(subnet="subnet-1", image=""))
    assert in_subnet["SubnetId"] == "subnet-1" and not {"Placement", "ImageId"} & in_subnet.keys()


def test_the_script_is_valid_small_and_shows_the_token_in_no_command(tmp_path):
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n" + "x" * 3000 + "\n-----END CERTIFICATE-----\n")
    found = arguments(tmp_path, cafile=str(tmp_path / "ca"), folder="/data/my folder")
    text = script(found)
    subprocess.run(["sh", "-n"], input=text.encode(), check=True)
    assert len(found["UserData"].encode()) < MOST_BYTES
    assert [line for line in text.splitlines() if TOKEN in line] == [TOKEN], "a line of a file, not of a command"
    [command] = [line for line in text.splitlines() if "--server -" in line]
    for words in ("--name cloud-m7", "--machine 7", "--notices ec2", "--rebalance drain", "--cafile ca.pem",
                  "--tag type=c7g.large", "--tag zone=r1a", "--tag gpus=1", "start.py windfall "):  # fmt: skip
        assert words in command
    assert f"= {metadata.RECLAIMED} ]" in text, "a machine that is reclaimed must not shut itself down"


def test_user_data_that_ec2_would_refuse_is_an_error(tmp_path):
    (tmp_path / "ca").write_text("x" * MOST_BYTES)
    with pytest.raises(AssertionError, match="16384"):
        arguments(tmp_path, cafile=str(tmp_path / "ca"))


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("", "it names no instance types"),
        ('types = ["c7g large"]\nimage = "ami-1"', "not an instance type"),
        ('types = ["c7g.*"]', "no image and no launch template"),
        ('types = ["c7g.*"]\nimage = "ami-1"\nmarkets = ["spott"]', "spott"),
        ('types = ["c7g.*"]\nimage = "ami-1"\nmarkets = []', "markets is empty"),
        ('types = ["c7g.*"]\nimage = "ami-1"\ninterruption = "sleep"', "interruption = 'sleep'"),
        ('types = ["c7g.*"]\nimage = "ami-1"\nrebalance = "run"', "rebalance = 'run'"),
        ('types = ["c7g.*"]\nimage = "ami-1"\ninterval = 0', "interval"),
        ('types = ["c7g.*"]\nimage = "ami-1"\ncalls_per_s = 0', "calls_per_s"),
        ('types = ["c7g.*"]\nimage = "ami-1"\non_demand_prices = { "c7g.large" = -1.0 }', "c7g.large"),
        ('types = ["c7g.*"]\nimage = "ami-1"\naccount = "x; reboot"', "account = 'x; reboot'"),
        ('types = ["c7g.*"]\nimage = "ami-1"\ntags = { "windfall:x" = "y" }', "windfall:x"),
        ('types = ["c7g.*"]\nimage = "ami-1"\nregion = "r1"', "did you mean 'regions'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_asked_of_aws(tmp_path, lines, error):
    (tmp_path / "pools.toml").write_text(f'[[pool]]\nname = "cloud"\nkind = "ec2"\n{lines}\n')
    with pytest.raises(BadInput) as caught:
        read_pools(tmp_path / "pools.toml")
    assert error in f"{caught.value.message} {caught.value.hint}" and "pools.toml" in caught.value.message


def test_the_page_names_every_field():
    page = (ROOT / "docs" / "howto" / "ec2.md").read_text()
    assert [name for name in Ec2Settings.__struct_fields__ if f"`{name}`" not in page] == []


def test_the_pool_of_the_page_can_be_read(tmp_path):
    page = (ROOT / "docs" / "howto" / "ec2.md").read_text()
    (tmp_path / "pools.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    [pool] = read_pools(tmp_path / "pools.toml")
    assert (pool.kind, pool.settings.types, pool.most) == ("ec2", ["c7g.*", "m7g.large"], 20)
    permissions = page.partition("```json\n")[2].partition("```")[0]
    assert msgspec.json.decode(permissions)["Version"] == "2012-10-17"

"""The command line of a site's agent: `worker.pyz --site` and `windfall site agent`. Touches the terminal."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from windfall.worker import identity
from windfall.worker.__main__ import address_of, memory_mb, name_of, run, tag_of
from windfall.worker.site.agent import SiteAgent, SiteOptions

_EXAMPLE = """\
examples:
  windfall site agent --server http://10.0.0.1:7272 --token-file ~/.windfall-token --vcpu 8 --ram 16000
  python3 worker.pyz --site lab --vcpu 8 --ram 16000 --tag disk=ssd      (WINDFALL_SERVER, WINDFALL_TOKEN set)
"""


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 < amount <= 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return amount


def _resource(text: str) -> tuple[str, float]:
    name, equals, amount = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=AMOUNT")
    return name, _amount(amount)


def parser(prog: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=prog,
        description="Offer this host to a site of a Windfall server: run workers while it is idle, and commands that "
        "people ask for at once.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--site", nargs="?", const="", default="", metavar="NAME", help="the site (default: the only one)")
    add("--server", metavar="URL", help="the server (default: WINDFALL_SERVER)")
    add("--token", metavar="T", help="a token of role worker (default: WINDFALL_TOKEN)")
    add("--token-file", metavar="FILE", help="read the token from a file, so that `ps` does not show it")
    add("--cafile", metavar="FILE", help="certificate of a private authority for https")
    add("--vcpu", type=_amount, metavar="N", help="cores to offer (default: all)")
    add("--ram", type=memory_mb, metavar="MB", help="memory to offer: MB, or 4G (default: all)")
    add("--disk", type=_amount, metavar="GB", help="disk to offer")
    add(
        "--resource",
        type=_resource,
        action="append",
        default=[],
        metavar="NAME=AMOUNT",
        help="anything else; repeatable",
    )
    add("--tag", type=tag_of, action="append", default=[], metavar="K=V", help="a label of this host; repeatable")
    add("--name", type=name_of, metavar="NAME", help="the host's id (default: a stable one)")
    add("--dir", metavar="DIR", help=f"where to keep files (default: {identity.default_folder()})")
    add("--quiet", action="store_true", help="print errors only")
    return made


def _options(args: argparse.Namespace) -> SiteOptions:
    capacity = {"vcpu": args.vcpu or float(identity.cpus()), "ram_mb": args.ram or float(identity.memory_mb())}
    if args.disk:
        capacity["disk_gb"] = args.disk
    return SiteOptions(
        address=address_of(args),
        folder=os.path.abspath(args.dir or identity.default_folder()),
        site=args.site or "",
        capacity={**capacity, **dict(args.resource)},
        tags=[f"{key}={value}" for key, value in args.tag],
        name=args.name,
        quiet=args.quiet,
    )


def main(argv: Sequence[str] | None = None, prog: str = "worker.pyz --site") -> int:
    """Run an agent and return its exit code."""
    args = parser(prog).parse_args(argv)
    return run("agent", lambda: SiteAgent(_options(args)))

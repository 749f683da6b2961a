"""The command line of the worker: the same for `windfall worker` and for `python3 worker.pyz`. Touches the terminal."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol
from urllib.parse import urlsplit

from windfall.worker import identity, metadata
from windfall.worker.agent import Agent, Options
from windfall.worker.running import isolation, system
from windfall.worker.transport.link import Address

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EXAMPLE = """\
examples:
  windfall worker --server http://10.0.0.1:7272 --token-file ~/.windfall-token
  python3 worker.pyz --slots 4 --lifetime 55m --idle-exit 10m --tag rack=b7     (WINDFALL_SERVER, WINDFALL_TOKEN set)
  python3 worker.pyz --site lab --vcpu 8 --ram 16000     offer this host to a site; more: worker.pyz --site --help
"""


class Usage(Exception):
    """A wrong option or environment; the text says where and what. Exit code 2."""


def duration_s(text: str) -> float:
    """Seconds of a duration such as 90, 90s, 55m, 1.5h, 1h30m."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration (examples: 90s, 55m, 1h30m)")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def tag_of(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def resource_of(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", name) or not count.isdigit() or int(count) > 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name and a whole number up to 1000, as in fpga=2")
    return name, int(count)


def _positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 4096")
    return int(text)


def memory_mb(text: str) -> int:
    """Megabytes of a size such as 4096 (MB), 500M, 4G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size_mb = round(float(found[1]) * {"": 1, "M": 1, "G": 1024, "T": 1 << 20}[found[2].upper()]) if found else 0
    if size_mb < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size (examples: 4096 for MB, 500M, 4G)")
    return size_mb


def share_of(text: str) -> float:
    """A share between 0 and 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise argparse.ArgumentTypeError(f"'{text}' is no share between 0 and 1, as in 0.2")
    return share


def machine_of(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a machine")
    return int(text)


def name_of(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name (letters, digits, '.', '_' and '-', at most 100)")
    return text


class _Parser(argparse.ArgumentParser):
    """Errors in two lines: where and what, and what to do next."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"windfall: {message}\n  {self.prog} --help shows the options\n")


def parser(prog: str) -> argparse.ArgumentParser:
    made = _Parser(
        prog=prog,
        description="Take tasks from a Windfall server and run them, until told to stop.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--quiet", action="store_true", help="print errors only")
    _add_server(made.add_argument_group("the server"))
    _add_host(made.add_argument_group("this host"))
    _add_tasks(made.add_argument_group("its tasks"))
    _add_end(made.add_argument_group("when to end"))
    _add_notices(made.add_argument_group("notices of interruptions"))
    return made


def _add_server(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--server",
        metavar="URL",
        help="the server, and its standbys: URL1,URL2 (default: WINDFALL_SERVER); -: they come by standard input, in "
        "the next line the token, and behind it the host's secret if that is to be kept in memory alone",
    )
    add("--token", metavar="T", help="a token of role worker (default: WINDFALL_TOKEN)")
    add("--token-file", metavar="FILE", help="read the token from a file, so that `ps` does not show it")
    add(
        "--forget-token-file",
        action="store_true",
        help="remove that file before the first task, and keep the host's secret in memory: no task can read them, and "
        "a worker that is started again needs a new token",
    )
    add("--cafile", metavar="FILE", help="certificate of a private authority for https")


def _add_host(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--slots", type=_positive, metavar="N", help="how many tasks at once (default: one per core)")
    add("--memory", type=memory_mb, metavar="MB", help="memory that tasks may share: MB, or 4G (default: the host's)")
    add(
        "--resource",
        type=resource_of,
        action="append",
        default=[],
        metavar="NAME=N",
        help="units of a resource that tasks may ask for: fpga=2; GPUs are found by nvidia-smi or rocm-smi; repeatable",
    )
    add(
        "--tag",
        type=tag_of,
        action="append",
        default=[],
        metavar="K=V",
        help="a label of this host, for policies; repeatable",
    )
    add("--pool", metavar="NAME", help="the pool that this host belongs to")
    add("--machine", type=machine_of, metavar="N", help="number of the rented machine that this host is")
    add(
        "--name", type=name_of, metavar="NAME", help="the host's id (default: a stable one from hardware and host name)"
    )
    add("--dir", metavar="DIR", help=f"where to keep files (default: {identity.default_folder()})")


def _add_tasks(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--isolate",
        action="store_true",
        help="run tasks in a sandbox (bubblewrap): read-only system, private /tmp, no network, worker's files hidden",
    )
    add("--isolate-network", action="store_true", help="the same, with the network")
    add("--grace", type=duration_s, metavar="T", help="grace time of tasks when the worker ends (default: their own)")


def _add_end(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--lifetime",
        type=duration_s,
        metavar="T",
        help="end in good order before this time has passed (default in a Slurm or PBS job: its end)",
    )
    add("--idle-exit", type=duration_s, metavar="T", help="end after this time without a task")
    add(
        "--unreachable-exit",
        type=duration_s,
        metavar="T",
        help="end after this time without an answer of the server; results are kept",
    )
    add(
        "--least-cpu",
        type=share_of,
        metavar="SHARE",
        help="end when tasks get less than this share (0.2) of the processor time they ask for, for 5 minutes",
    )
    add("--least-cpu-over", type=duration_s, default=300.0, metavar="T", help=argparse.SUPPRESS)
    add("--parent-pid", type=int, metavar="PID", help="end at once when this process ends")
    add("--die-with-parent", action="store_true", help="end at once when the process that started this one ends")


def _add_notices(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--notice-file", metavar="FILE", help="when this file appears, the machine is about to be reclaimed")
    add("--notices", choices=[metadata.EC2], help="read notices of interruptions from the metadata service of a cloud")
    add("--notices-every", type=duration_s, default=metadata.EVERY_S, metavar="T", help=argparse.SUPPRESS)
    add(
        "--rebalance",
        choices=[metadata.DRAIN, metadata.LEAVE, metadata.IGNORE],
        default=metadata.DRAIN,
        help="on a rebalance recommendation: finish running tasks (default), end them with their grace time, nothing",
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def address_of(args: argparse.Namespace) -> Address:
    url = args.server or os.environ.get("WINDFALL_SERVER")
    token, secret = args.token or os.environ.get("WINDFALL_TOKEN") or "", ""
    if url == "-":
        url = sys.stdin.readline().strip()
        token, _, secret = sys.stdin.readline().strip().partition(" ")
        if not url:
            raise Usage("no address came by the standard input")
    if not url:
        raise Usage("no server given\n  add --server URL or set WINDFALL_SERVER")
    url = url.replace(" ", "").rstrip(",")
    for one in url.split(","):
        if not _is_address(one):
            raise Usage(f"{one!r} is not the address of a server\n  it looks like http://10.0.0.1:7272 or https://host")
    if args.token:
        system.hide_argument(args.token)
    if getattr(args, "forget_token_file", False) and not args.token_file:
        raise Usage("--forget-token-file goes with --token-file FILE")
    if args.token_file:
        try:
            with open(args.token_file) as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"{args.token_file}: the token cannot be read ({error})") from None
    if not token or not token.isascii() or not token.isprintable():
        raise Usage("no usable token given\n  add --token-file FILE or set WINDFALL_TOKEN (windfall token create)")
    if args.cafile and not os.access(args.cafile, os.R_OK):
        raise Usage(f"{args.cafile}: the certificate cannot be read")
    if secret and not re.fullmatch(r"[0-9A-Za-z]{64}", secret):
        raise Usage("the host's secret has 64 letters and digits")
    return Address(url, token, args.cafile, secret)


def _options(args: argparse.Namespace) -> Options:
    folder = os.path.abspath(args.dir or identity.default_folder())
    identity.check_folder(folder)
    if args.isolate or args.isolate_network:
        try:
            isolation.check()
        except isolation.Unavailable as error:
            raise Usage(str(error)) from None
    identity.speed(folder)  # kept in the folder: measured here, the time is not lost while the address is waited for
    return Options(
        address=address_of(args),
        folder=folder,
        slots=args.slots or identity.cpus(),
        name=args.name,
        pool=args.pool,
        machine=args.machine,
        tags=dict(args.tag),
        lifetime_s=args.lifetime,
        idle_exit_s=args.idle_exit,
        unreachable_exit_s=args.unreachable_exit,
        parent_pid=os.getppid() if args.die_with_parent else args.parent_pid,
        notice_file=args.notice_file,
        memory_mb=args.memory,
        resources=dict(args.resource),
        grace_s=args.grace,
        notices=args.notices,
        notices_every_s=args.notices_every,
        rebalance=args.rebalance,
        least_cpu=args.least_cpu,
        least_cpu_over_s=args.least_cpu_over,
        quiet=args.quiet,
        token_file=args.token_file,
        forget_token_file=args.forget_token_file,
        isolate=args.isolate or args.isolate_network,
        isolate_network=args.isolate_network,
    )


def main(argv: Sequence[str] | None = None, prog: str = "worker.pyz") -> int:
    """Run a worker and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if "--site" in argv:
        from windfall.worker.site.main import main as offer_this_host

        return offer_this_host(argv, prog)
    args = parser(prog).parse_args(argv)
    return run("worker", lambda: Agent(_options(args)))


class Runs(Protocol):
    """What `run` runs: a worker, or the agent of a site."""

    def run(self) -> int: ...


def run(what: str, make: Callable[[], Runs]) -> int:
    """Make it and run it; its exit code, or 2 with a sentence on standard error if it cannot be made."""
    try:
        if not sys.platform.startswith("linux"):
            raise Usage(f"the {what} needs Linux")
        made = make()
    except (Usage, identity.Taken) as error:
        print(f"windfall: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"windfall: the {what}'s folder cannot be used: {error}\n  choose another with --dir", file=sys.stderr)
        return 2
    return made.run()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Do not wait for threads that are in the middle of a request: their results are not needed any more.
    os._exit(code)

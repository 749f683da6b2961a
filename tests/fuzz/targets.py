"""What is fuzzed: each target takes bytes, and raises nothing but an error of ours, with a message of few lines."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from windfall.bags.chunks import decode as decode_chunk
from windfall.bags.jobfile import read_job_file
from windfall.bags.reading import json_lines, read_csv, read_lines, read_range
from windfall.bags.sbatch import read_sbatch
from windfall.bags.spec import decode as decode_spec
from windfall.bags.spec import decode_kept
from windfall.boinc.requests import read_request
from windfall.core.matching.policy import POLICIES
from windfall.core.records import decode_record
from windfall.errors import WindfallError
from windfall.placement import parse as placement
from windfall.policy.check import check_policies
from windfall.policy.reading import read_ad, read_policies
from windfall.pools.config import read_pools
from windfall.server.hooks.config import read_hooks
from windfall.server.http.submission import read_changes, read_chunks
from windfall.server.http.workers import exchange as worker_exchange
from windfall.server.sites import exchange as site_exchange
from windfall.sim.inputs import traces
from windfall.sim.scenario import check as check_scenario
from windfall.sim.scenario import load_document
from windfall.units import parse_bytes, parse_deadline, parse_duration, parse_money
from windfall.workflows import tomlformat, wfformat
from windfall.workflows.offers import read_offers

MOST_CHARS = 2000
"""Of a message: what is wrong, not all that was read."""
_FOLDER = Path(tempfile.mkdtemp(prefix="wf-fuzz-"))


def _as_file(read: Callable[[Path], object], name: str) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        path = _FOLDER / name
        path.write_bytes(data)
        read(path)

    return target


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape" if data[:1] == b"\xff" else "replace")


def _policies(data: bytes) -> None:
    found = read_policies(_text(data), "policies").policies
    known = {policy: found[policy] for policy in POLICIES if policy in found}  # others are refused by their names
    check_policies({policy: text for policy, text in known.items() if isinstance(text, str)})


def _trace(read: Callable[..., object], name: str, *more: str) -> Callable[[bytes], None]:
    return _as_file(lambda path: read(path.name, *more, "trace", path, None), name)


def _placed(data: bytes) -> None:
    placement.hosts(placement.document(_text(data), "hosts"), "hosts")


def _units(data: bytes) -> None:
    text = _text(data)
    for read in (parse_duration, parse_bytes, parse_money, lambda text: parse_deadline(text, 1.8e9), read_range):
        try:
            read(text)  # type: ignore[operator]
        except WindfallError:
            continue


def _record(data: bytes) -> None:
    # Sums over records find damage first; what still passes is told by `state check` as a record that cannot be read.
    try:
        decode_record(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return


def _scenario(path: Path) -> None:
    document, where = load_document(str(path))
    check_scenario(document, where)


TARGETS: dict[str, Callable[[bytes], object]] = {
    "job-toml": _as_file(read_job_file, "job.toml"),
    "workflow-toml": lambda data: tomlformat.parse(data, "workflow.toml", lambda name: True),
    "wfformat": lambda data: wfformat.parse(data, "workflow.json"),
    "csv": lambda data: read_csv(io.BytesIO(data), "values.csv"),
    "lines": lambda data: read_lines(io.BytesIO(data), "tasks.txt", commands=True),
    "json-lines": lambda data: list(json_lines(io.BytesIO(data), "tasks.jsonl")),
    "sbatch": lambda data: read_sbatch(_text(data), "job.sh", "/job.sh", "/"),
    "pools-toml": _as_file(read_pools, "pools.toml"),
    "hooks-toml": _as_file(read_hooks, "hooks.toml"),
    "offers": _as_file(read_offers, "offers.toml"),
    "scenario": _as_file(_scenario, "scenario.toml"),
    "availability": _trace(traces.availability, "availability.json"),
    "prices": _trace(traces.prices, "prices.csv", "a/b"),
    "run-times": _trace(traces.run_times, "runs.csv"),
    "swf": _trace(traces.arrivals, "log.swf"),
    "policies": _policies,
    "ad": lambda data: read_ad(_text(data), "host.ad", "Host"),
    "placement": _placed,
    "units": _units,
    "submission": lambda data: decode_spec(data),
    "changes": read_changes,
    "chunks": read_chunks,
    "exchange": worker_exchange.read,
    "site-exchange": site_exchange.read,
    "boinc-request": read_request,
    "stored-record": _record,
    "stored-spec": lambda data: decode_kept(data),
    "stored-lines": lambda data: decode_chunk("lines", data, 3),
    "stored-rows": lambda data: decode_chunk("rows", data, 3),
}


def read(name: str, data: bytes) -> None:
    """Raises what is not an error of ours, and AssertionError for a message that nobody would read."""
    try:
        TARGETS[name](data)
    except WindfallError as error:
        said = f"{error.message}\n{error.hint}"
        assert len(said) < MOST_CHARS, f"{len(said)} characters: {said[:200]}"

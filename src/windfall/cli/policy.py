"""`windfall policy`: check and try policies before a bag uses them. A thin layer over the package `windfall.policy`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from windfall.bounds import MAX_AMOUNT
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.policy.check import Finding
    from windfall.policy.report import PolicyResult

FILE_ENDINGS = (".toml", ".ad", ".classad", ".json")
# What a fresh bag and a fresh host look like to the server, where the files do not say otherwise.
FRESH: dict[str, dict[str, Any]] = {
    "Host": {
        "Running": 0,
        "ErrorRate": 0.0,
        "LossRate": 0.0,
        "JobsToday": 0,
        "CpuTimeUsedRecently": 0.0,
        "Blocked": False,
    },
    "Job": {"NumberOfReplicas": 0},
    "BOT": {"Priority": 0.0, "Tail": False, "JobsDone": 0, "JobsFailed": 0},
    "Queue": {"BOTsInQueue": 1},
    "Pool": {},
}


@click.group()
def policy() -> None:
    """Check and test the policies of a bag: where its tasks run, how they rank, when they are replicated.

    \b
    windfall policy check 'Host.Memory >= 8192 && Host.ErrorRate < 0.1'
    windfall policy test --bag job.toml --host node7.json
    """


@policy.command()
@click.argument("file_or_expression", metavar="FILE|EXPR")
@click.option("--as", "policy_as", default="JobRequirements", show_default=True, help="Which policy EXPR is.")
@click.option("--attr", "attributes", multiple=True, metavar="AD.NAME", help="An attribute of your own; repeat.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def check(file_or_expression: str, policy_as: str, attributes: tuple[str, ...], as_json: bool) -> None:
    """Say what is wrong with policies, before anything runs.

    FILE is a job file with a table [job.policies], a TOML file of policies alone, or a ClassAd; EXPR is one
    expression.
    Ends with 2 if there is an error; warnings are only shown.

    \b
    windfall policy check job.toml
    windfall policy check 'Host.gpu =?= "a100"' --attr Host.gpu
    windfall policy check '2 * Host.Cpus' --as Concurrency
    """
    from windfall.policy import check_policies, named_policies

    written, own = _policies_to_check(file_or_expression, policy_as)
    texts = named_policies(written)
    findings = check_policies(texts, _declared(attributes, own))
    failed = any(finding.level == "error" for finding in findings)
    if as_json:
        _print_json({"ok": not failed, "policies": texts, "findings": findings})
    else:
        _print_findings(texts, findings)
    if failed:
        raise click.exceptions.Exit(BadInput.exit_code)


def _policies_to_check(file_or_expression: str, policy_as: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(policies, attributes that the file gives the bag)"""
    from windfall.policy.reading import read_policies

    path = Path(file_or_expression)
    if not _names_a_file(file_or_expression):
        return {policy_as: file_or_expression}, {}
    found = read_policies(_text(path), str(path))
    if not found.policies:
        raise BadInput(
            f"{path} has no policies", hint='add a table [job.policies] with for example Rank = "Host.Speed"'
        )
    return found.policies, found.ads.get("BOT", {})


def _names_a_file(text: str) -> bool:
    """An expression is no file, however short; a name with a file's ending is one, even if it is not there."""
    if text.endswith(FILE_ENDINGS):
        return True
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # Too long for a file name, or a NUL in it.
        return False


def _declared(attributes: tuple[str, ...], own: dict[str, Any]) -> dict[str, list[str]]:
    from windfall.policy.names import ad_name

    declared: dict[str, list[str]] = {"BOT": list(own)}
    for written in attributes:
        ad, _, name = written.partition(".")
        canonical = ad_name(ad)
        if canonical is None or not name:
            raise BadInput(f"--attr {written}: not an attribute", hint="write for example --attr Host.gpu")
        declared.setdefault(canonical, []).append(name)
    return declared


def _print_findings(texts: dict[str, str], findings: list[Finding]) -> None:
    for name, text in texts.items():
        mine = [finding for finding in findings if finding.policy == name]
        errors = sum(finding.level == "error" for finding in mine)
        state = click.style("error", fg="red") if errors else click.style("ok", fg="green")
        click.echo(f"{name}  {state}")
        if not mine:
            continue
        for finding in mine:
            line, column = _line_at(text, finding.offset)
            click.echo(f"    {line}")
            click.echo(f"    {' ' * column}^ {finding.level}, {finding.where}: {finding.message}")
            if finding.hint:
                click.echo(f"    {' ' * column}  {finding.hint}")


def _line_at(text: str, offset: int) -> tuple[str, int]:
    """The line that an offset falls in, and its column there."""
    begin = text.rfind("\n", 0, offset) + 1
    return text[begin:].split("\n", 1)[0].expandtabs(1), offset - begin


@policy.command()
@click.option("--bag", required=True, type=Path, metavar="FILE", help="Job file, policy file or ClassAd.")
@click.option("--host", type=Path, metavar="FILE", help="The host's attributes, as JSON, TOML or a ClassAd.")
@click.option("--job", type=Path, metavar="FILE", help="The task's attributes, with its running replicas.")
@click.option("--pool", type=Path, metavar="FILE", help="The pool's attributes, for GridPolicy.")
@click.option("--set", "settings", multiple=True, metavar="AD.NAME=VALUE", help="Set one attribute; repeat.")
@click.option("--now", type=float, help="Time for Now, in seconds.  [default: the time of day]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def test(
    bag: Path,
    host: Path | None,
    job: Path | None,
    pool: Path | None,
    settings: tuple[str, ...],
    now: float | None,
    as_json: bool,
) -> None:
    """Evaluate every policy of a bag against a host, and say which clause decides.

    \b
    windfall policy test --bag job.toml --host node7.json
    windfall policy test --bag job.toml --set Host.Memory=4096 --set BOT.Tail=true
    """
    from windfall.policy.reading import assign, read_ad, read_policies
    from windfall.policy.report import outcomes

    found = read_policies(_text(bag), str(bag))
    ads = {name: dict(found.ads.get(name, {})) for name in FRESH}
    for name, path in (("Host", host), ("Job", job), ("Pool", pool)):
        if path is not None:
            ads[name] = read_ad(_text(path), str(path), name)
    for setting in settings:
        assign(ads, setting)
    _check_numbers(ads)
    if not ads["Host"]:
        raise BadInput("no host to test against", hint="add --host node7.json, or --set Host.Memory=4096")
    assumed = _assume(ads)
    scopes = (ads["Host"], ads["Job"], ads["BOT"], ads["Queue"], ads["Pool"], time.time() if now is None else now)
    results = outcomes(found.policies, scopes)
    used = _used(results, assumed)
    if as_json:
        _print_json(_as_document(results, used))
    else:
        _print_outcomes(results, used)


def _check_numbers(ads: dict[str, dict[str, Any]]) -> None:
    """Refuse what no host, task or bag ever says of itself: a text or an infinity for a number."""
    from windfall.policy.names import ATTRIBUTES

    for known in ATTRIBUTES:
        if known.type not in ("integer", "real") or known.name not in ads[known.ad]:
            continue
        value = ads[known.ad][known.name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MAX_AMOUNT:
            said = f"{known.ad}.{known.name} = {str(value)[:40]!r}"
            raise BadInput(f"{said}: not a number, or beyond {MAX_AMOUNT:g}", hint=f"as in: {known.example}")


def _assume(ads: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Fill in what a fresh host and bag would have; returns what was filled in."""
    host = ads["Host"]
    fresh = {name: dict(values) for name, values in FRESH.items()}
    fresh["Host"]["Slots"] = host.get("Cpus", 1)
    if "Pool" in host:
        fresh["Pool"]["Name"] = host["Pool"]
    assumed = {}
    for name, values in fresh.items():
        for attribute, value in values.items():
            if attribute not in ads[name]:
                ads[name][attribute] = value
                assumed[f"{name}.{attribute}"] = value
    return assumed


def _used(results: list[PolicyResult], assumed: dict[str, Any]) -> dict[str, Any]:
    """Of the assumptions, those that some policy looked at."""
    from windfall.policy.evaluate import references

    looked_at = {str(name) for outcome in results if not outcome.is_default for name in references(outcome.text)}
    return {name: value for name, value in assumed.items() if name in looked_at}


def _as_document(results: list[PolicyResult], assumed: dict[str, Any]) -> dict[str, Any]:
    effects = {outcome.policy: outcome.effect for outcome in results}
    return {
        "matches": effects["JobRequirements"],
        "rank": effects["Rank"],
        "concurrency": effects["Concurrency"],
        "deadline_s": effects["Deadline"],
        "replica": effects["ReplicationRequirements"],
        "wants_pool": effects["GridPolicy"],
        "policies": results,
        "assumed": assumed,
    }


def _print_outcomes(results: list[PolicyResult], assumed: dict[str, Any]) -> None:
    from windfall.policy.explain import shown

    for outcome in results:
        source = "(default)" if outcome.is_default else " ".join(outcome.text.split())
        click.echo(f"{outcome.policy:<24} {_effect(outcome):<22} {source}")
        width = max((len(clause.text) for clause in outcome.clauses), default=0)
        for clause in outcome.clauses:
            mark = click.style("ok", fg="green") if clause.ok else click.style("no", fg="red")
            click.echo(f"    {mark}  {clause.text:<{min(width, 60)}}  {clause.detail}")
    if assumed:
        listed = ", ".join(f"{name} = {shown(value)}" for name, value in assumed.items())
        click.echo(f"assumed: {listed}   (say otherwise with --set)")


def _effect(outcome: PolicyResult) -> str:
    effect = outcome.effect
    if outcome.policy == "JobRequirements":
        return "matches" if effect else "does not match"
    if outcome.policy == "ReplicationRequirements":
        return "may replicate" if effect else "no replica here"
    if outcome.policy == "GridPolicy":
        return "asks this pool" if effect else "does not ask"
    if outcome.policy == "Deadline":
        return "no limit" if effect is None else f"{effect:g} s"
    return f"{effect:g}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", hint="is the path right? it is relative to this folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(msgspec.to_builtins(document), indent=2))

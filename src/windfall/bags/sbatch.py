"""An array script of Slurm as a job file: #SBATCH directives are read, or refused with their line. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from windfall.errors import BadInput
from windfall.units import parse_bytes

_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
_SHORT = {
    "a": "array", "t": "time", "c": "cpus-per-task", "J": "job-name", "o": "output", "e": "error", "D": "chdir",
    "n": "ntasks", "N": "nodes", "p": "partition", "A": "account", "q": "qos", "d": "dependency", "C": "constraint",
    "w": "nodelist", "x": "exclude", "L": "licenses", "G": "gpus", "i": "input",
}  # fmt: skip
_FLAGS = {
    "requeue",
    "no-requeue",
    "exclusive",
    "contiguous",
    "wait",
    "hold",
    "test-only",
    "parsable",
    "quiet",
    "verbose",
}
_MEANINGLESS = {"requeue", "parsable", "quiet", "verbose", "wait", "comment"}
"""What changes nothing about the tasks; losses are always tried again here."""
_ELSEWHERE = {
    "partition": "name the partition in a pools.toml (docs/howto/slurm.md)",
    "account": "name the account in a pools.toml (docs/howto/slurm.md)",
    "qos": "name it in a pools.toml (docs/howto/slurm.md)",
    "dependency": "make a workflow of the scripts (docs/howto/workflows.md)",
    "constraint": "write a policy: --require (docs/howto/policies.md)",
    "nodelist": "write a policy: --require (docs/howto/policies.md)",
    "exclude": "block the host: windfall host block, or write a policy: --require",
    "mail-type": "let the server call a hook (docs/howto/monitoring.md)",
    "mail-user": "let the server call a hook (docs/howto/monitoring.md)",
    "begin": "submit it then",
    "exclusive": "ask for all cores of a host: --cpus-per-task",
}
MOST_LISTED = 1_000_000
_TIME = re.compile(r"(?:(?P<d>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")
_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class Directive(Struct, frozen=True):
    """One option of a script. `place`: where it stands, for errors."""

    name: str
    value: str
    place: str


class Imported(Struct, kw_only=True):
    """What a script became: the fields of its job file, and how many of its tasks may run at once (None: any)."""

    job: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    slots: int | None = None
    output: str | None = None
    error: str | None = None


def read_sbatch(text: str, source: str, path: str, cwd: str, ignore: frozenset[str] = frozenset()) -> Imported:
    """The job of a script. `path`: the script as hosts see it; `cwd`: where `sbatch` would have been typed.

    `ignore`: names of directives that are left out. BadInput names the line of what cannot be carried over.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise BadInput(f"{source} line 1: no '#!' with an interpreter", hint="begin it with: #!/bin/bash")
    found = Imported(job={"name": _name(source.rpartition("/")[2].partition(".")[0]), "cwd": cwd})
    given = {each.name: each for each in _directives(lines, source) if each.name not in ignore}
    for each in given.values():
        _carry(found, each)
    _memory_per_cpu(found, given.get("mem-per-cpu"))
    _refuse_steps(lines, source, ignore)
    if "array" not in given:
        found.job["range"] = "0-0"
        found.env["SLURM_PROCID"] = "{}"
    found.env["SLURM_JOB_NAME"] = found.job["name"]
    try:
        interpreter = shlex.split(lines[0][2:].strip())
    except ValueError as error:
        raise BadInput(f"{source} line 1: {error}", hint="as in: #!/bin/bash") from None
    found.job["command"] = ["sh", "-c", _wrapper(found), "sh", *map(_literal, [*interpreter, path])]
    return found


def as_toml(found: Imported) -> str:
    """The job file."""
    first = [] if found.slots is None else [f"# At most {found.slots} at once: windfall run --slots {found.slots} FILE"]
    job = [f"{name} = {_toml(value)}" for name, value in found.job.items()]
    env = [f"{name} = {_toml(value)}" for name, value in found.env.items()]
    return "\n".join([*first, "[job]", *job, "", "[job.env]", *env, ""])


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # texts, whole numbers and lists of them are written alike


# -- reading -----------------------------------------------------------------------------------------------------------


def _directives(lines: list[str], source: str) -> list[Directive]:
    """Those before the first command, as sbatch reads them; a later one of a name goes before an earlier one."""
    found: dict[str, Directive] = {}
    for number, line in enumerate(lines, 1):
        if match := _DIRECTIVE.match(line):
            for each in _options(match[1], f"{source} line {number}"):
                found[each.name] = each
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return list(found.values())


def _options(text: str, place: str) -> list[Directive]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        raise BadInput(f"{place}: a quote is not closed: {text[:80]}") from None
    found = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, is_set, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            is_set = "=" if value else ""
        else:
            raise BadInput(f"{place}: '{word[:40]}' is no option", hint="options begin with '-', as in --array=1-10")
        if not is_set and name not in _FLAGS:
            if not words:
                raise BadInput(f"{place}: {word[:40]} needs a value")
            value = words.pop(0)
        found.append(Directive(name, value, f"{place}: {word if is_set else f'{word} {value}'.strip()}"))
    return found


def _carry(found: Imported, each: Directive) -> None:
    if each.name in _CARRIED:
        _CARRIED[each.name](found, each)
    elif each.name not in _MEANINGLESS:
        next_step = _ELSEWHERE.get(each.name, "take it away")
        raise _refused(each, "is not carried over", f"{next_step}; then leave it out: --ignore {each.name}")


def _refused(each: Directive, why: str, hint: str) -> BadInput:
    return BadInput(f"{each.place} {why}", hint=hint)


# -- one function a directive ------------------------------------------------------------------------------------------


def _array(found: Imported, each: Directive) -> None:
    spec, percent, most = each.value.partition("%")
    if percent:
        if not most.isdecimal() or int(most) < 1:
            raise _refused(each, "has no number of tasks behind '%'", "as in --array=1-100%4")
        found.slots = int(most)
    parts = [_PART.fullmatch(part) for part in spec.split(",")]
    ranges = [(int(m[1]), int(m[2] or m[1]), int(m[3] or 1)) for m in parts if m]
    if len(ranges) < len(parts) or any(last < first or step < 1 for first, last, step in ranges):
        raise _refused(each, "is no list of numbers", "as in --array=0-15, --array=1,3,7 or --array=1-9:2")
    count = sum((last - first) // step + 1 for first, last, step in ranges)
    if len(ranges) == 1:
        first, last, step = ranges[0]
        found.job["range"] = f"{first}-{last}" + (f":{step}" if step > 1 else "")
        numbers = [first, first + (last - first) // step * step]
    elif count > MOST_LISTED:
        raise _refused(each, f"lists {count:,} tasks", f"write one range; a list may have {MOST_LISTED:,}")
    else:
        numbers = sorted({n for first, last, step in ranges for n in range(first, last + 1, step)})
        count = len(numbers)
        found.job["params"] = numbers
    step = ranges[0][2] if len(ranges) == 1 else 1
    told = {"ID": "{}", "COUNT": str(count), "MIN": str(min(numbers)), "MAX": str(max(numbers)), "STEP": str(step)}
    found.env.update({f"SLURM_ARRAY_TASK_{name}": value for name, value in told.items()})


def _time(found: Imported, each: Directive) -> None:
    if each.value.upper() in ("UNLIMITED", "INFINITE", "0"):
        return
    match = _TIME.fullmatch(each.value)
    if not match:
        raise _refused(each, "is no time limit", "as in --time=90 (minutes), 1:30:00 or 2-12:00:00")
    parts = [int(part) for part in match["rest"].split(":")]
    if match["d"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        hours += 24 * int(match["d"])
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # minutes[:seconds]
        hours, minutes, seconds = 0, parts[0], parts[1] if len(parts) > 1 else 0
    found.job["wall"] = f"{hours * 3600 + minutes * 60 + seconds}s"


def _memory(found: Imported, each: Directive) -> None:
    if (size := _megabytes(each)) > 0:  # 0: all of the host's
        found.job["memory"] = f"{size}M"


def _memory_per_cpu(found: Imported, each: Directive | None) -> None:
    if each is not None:
        found.job["memory"] = f"{_megabytes(each) * int(found.job.get('cpus', 1))}M"


def _megabytes(each: Directive) -> int:
    text = each.value if each.value[-1:].isalpha() else f"{each.value}M"
    return -(-parse_bytes(text, each.place) // (1 << 20))


def _cpus(found: Imported, each: Directive) -> None:
    found.job["cpus"] = _whole(each)
    found.env["SLURM_CPUS_PER_TASK"] = each.value


def _one(found: Imported, each: Directive) -> None:
    if _whole(each) != 1:
        raise _refused(each, "asks for more than one process a task", "make each process a task of the array")


def _gpus(found: Imported, each: Directive) -> None:
    """`gpu`, `gpu:2` (--gres) or `2` (--gpus); a type of card is refused."""
    kind, _, number = each.value.rpartition(":")
    if each.name == "gres":
        kind, number = (kind or number, number if kind else "1")
        if not kind.startswith("gpu"):
            hint = "use --resource NAME=1 (docs/howto/resources.md), and --ignore gres"
            raise _refused(each, "is not carried over", hint)
        kind = kind.partition(":")[2]
    if kind or not number.isdecimal():
        hint = f"choose hosts with that card by a policy (--require), and say --gpus; --ignore {each.name}"
        raise _refused(each, "asks for a type of card", hint)
    found.job["gpus"] = int(number)


def _export(found: Imported, each: Directive) -> None:
    for part in each.value.split(","):
        name, is_set, value = part.partition("=")
        if is_set and name.isidentifier():
            found.env[name] = _literal(value)
        elif part not in ("ALL", "NIL", ""):
            raise _refused(
                each, f"passes {part[:40]} on", f"say its value (--export={part[:40]}=...), or --ignore export"
            )


def _whole(each: Directive) -> int:
    if not each.value.isdecimal() or int(each.value) < 1:
        raise _refused(each, "needs a whole number from 1 up", f"as in --{each.name}=2")
    return int(each.value)


def _name(text: str) -> str:
    """A name that a job may have: not a number, not `last`."""
    return f"job-{text}" if not text or text.isdecimal() or text == "last" else text


def _set(name: str, change: Callable[[str], str] = str) -> Callable[[Imported, Directive], None]:
    def carry(found: Imported, each: Directive) -> None:
        found.job[name] = change(each.value)

    return carry


def _stream(found: Imported, each: Directive) -> None:
    _file_name(each.value, each.place)
    setattr(found, each.name, each.value)


_CARRIED: dict[str, Callable[[Imported, Directive], None]] = {
    "array": _array, "time": _time, "mem": _memory, "mem-per-cpu": lambda found, each: None, "cpus-per-task": _cpus,
    "ntasks": _one, "nodes": _one, "ntasks-per-node": _one, "gres": _gpus, "gpus": _gpus, "gpus-per-task": _gpus,
    "export": _export, "job-name": _set("name", _name), "output": _stream, "error": _stream, "chdir": _set("cwd"),
    "no-requeue": lambda found, each: found.job.update(max_losses=1),
}  # fmt: skip


def _refuse_steps(lines: list[str], source: str, ignore: frozenset[str]) -> None:
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*(srun|sbcast|sattach)\b", line) and "srun" not in ignore:
            raise BadInput(
                f"{source} line {number}: {line.strip()[:60]}: steps are started by Slurm",
                hint="call the program itself: a task is one process here; or keep the line: --ignore srun",
            )


# -- the command -------------------------------------------------------------------------------------------------------


def _wrapper(found: Imported) -> str:
    """A line of shell that sets what is known only on the host, opens the files of -o and -e and runs the script."""
    parts = ['export SLURM_JOB_ID="$WINDFALL_JOB"', 'SLURM_ARRAY_JOB_ID="$WINDFALL_JOB"']
    if "SLURM_ARRAY_TASK_ID" not in found.env:
        parts = parts[:1]
    run = 'exec "$@"'
    name = found.job["name"]
    if found.output is not None:
        run = f'out={_file_name(found.output, "", name)}; {_make_folder("out")}; {run} >"$out"'
        run += " 2>&1" if found.error is None else ""
    if found.error is not None:
        run = f'err={_file_name(found.error, "", name)}; {_make_folder("err")}; {run} 2>"$err"'
    return f"{' '.join(parts)}; {run}"


def _make_folder(variable: str) -> str:
    return f'mkdir -p -- "$(dirname -- "${variable}")"'


def _file_name(pattern: str, place: str, name: str = "") -> str:
    """A pattern of Slurm, such as logs/%A_%4a.out, as a quoted text of the shell. BadInput for signs unknown here."""
    known = {
        "A": '"$WINDFALL_JOB"', "j": '"$WINDFALL_JOB"', "J": '"$WINDFALL_JOB"', "x": shlex.quote(name),
        "N": '"$(hostname)"', "u": '"$(id -un)"', "n": "0", "s": "0", "t": "0", "%": "%",
    }  # fmt: skip
    found = ""
    for literal, width, sign in re.findall(r"([^%]+)|%(\d*)(.?)", pattern):
        if literal:
            found += shlex.quote(literal)
        elif sign == "a":
            found += f'"$(printf %0{int(width or 1)}d "$SLURM_ARRAY_TASK_ID")"'
        elif sign in known and sign:
            found += known[sign]
        else:
            raise BadInput(f"{place} has '%{width}{sign}', which is not known here", hint="known are %A %a %j %x %N %u")
    return _literal(found)


def _literal(text: str) -> str:
    """A text in which braces are no placeholders."""
    return re.sub(r"\{([^{}]*)\}", r"{{\1}}", text)

"""How sure a job that has just begun is to be in time: `windfall plan JOB` beside it. Touches that process.

It simulates in a process of its own, with the least claim to the processor, and only while somebody looks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import IO, Any

from windfall.units import show_duration, show_usd

Json = dict[str, Any]
RUNS = 20


class Foresight:
    """Asks once, when the first plan is there; `words` is what came of it, or nothing."""

    def __init__(self, url: str, token: str, job: int) -> None:
        self._address = {"WINDFALL_SERVER": url, "WINDFALL_TOKEN": token}
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] | None = None
        self.words = ""

    def look(self, status: Json) -> None:
        if self._process is None:
            if _is_worth_asking(status):
                self._ask()
        elif self._answer is not None and self._process.poll() is not None:
            self._answer.seek(0)
            self.words = words_of(self._answer.read())
            self.close()

    def _ask(self) -> None:
        gently = ["nice", "-n", "19"] if shutil.which("nice") else []
        command = [*gently, sys.executable, "-m", "windfall", "plan", str(self._job), "--whole", "--json"]
        command += ["--seeds", str(RUNS)]
        env = {name: value for name, value in os.environ.items() if name != "WINDFALL_STATE"} | self._address
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        # In a session of its own, Ctrl-C is not for it; and no file in that directory has the name of a job.
        self._process = subprocess.Popen(
            command, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=self._answer, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            # With all that it has started.
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        if self._answer is not None:
            self._answer.close()
            self._answer = None


def _is_worth_asking(status: Json) -> bool:
    """A bag with a deadline that has a plan and is not about to end."""
    plan, tasks = status.get("plan"), status["tasks"]
    begins = tasks["done"] * 10 <= tasks["total"]
    return bool(plan and plan["plans"] and status["deadline_s"] and not status["workflow"] and begins)


def words_of(answer: bytes) -> str:
    """`simulated at the start: $0.30 to $0.42, in time in 20 of 20 runs`; nothing where it did not work out."""
    try:
        told = json.loads(answer)
    except ValueError:
        return ""
    cost, met = told.get("cost_usd"), told.get("met")
    if not cost or not met:
        return "" if told.get("possible", True) else "simulated at the start: the deadline is impossible"
    chance = f"in time in {met['runs']} of {told['runs']} runs"
    ways = []
    if surer := told.get("surer"):
        ways.append(f"--confidence {surer['confidence']:g} for about {show_usd(surer['cost_usd']['mean'])}")
    if nearest := told.get("nearest"):
        ways.append(f"a deadline {show_duration(nearest['deadline_s'])} after its start")
    if ways:
        chance += f" (often enough: {', or '.join(ways)})"
    return f"simulated at the start: {show_usd(cost['low'])} to {show_usd(cost['high'])}, {chance}"

"""When the batch job ends in which somebody started this worker by hand. Touches the commands of Slurm and PBS.

Workers that a pool starts are told (`--lifetime`). A thread asks, because a busy controller may take seconds to answer;
the worker takes tasks meanwhile and only looks at what was found.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

_TIMEOUT_S = 10.0
_AGAIN_S, _TRIES = 60.0, 30
"""Seconds until a controller that did not answer is asked again, and how often it is asked at most."""


class End(NamedTuple):
    """The job as people name it, and the Unix time at which its time limit ends it."""

    job: str
    at_t: float


class NoAnswer(Exception):
    """The batch system could not be asked now."""


class Watch:
    """Finds out when the job around this worker ends."""

    def __init__(self, find: Callable[[], End | None]) -> None:
        self._find = find
        self.found: End | None = None
        self._thread = threading.Thread(target=self._watch, name="batch job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        for _ in range(_TRIES):
            try:
                self.found = self._find()
                return
            except NoAnswer:
                time.sleep(_AGAIN_S)


def watch(environment: Mapping[str, str] = os.environ) -> Watch | None:
    """A watch on the job around this process; None where there is none."""
    if "SLURM_JOB_ID" in environment:
        return Watch(lambda: slurm_end(environment))
    if "PBS_JOBID" in environment:
        return Watch(lambda: pbs_end(environment))
    return None


def slurm_end(environment: Mapping[str, str]) -> End | None:
    """Slurm 23.02 and newer set the end in the environment; older ones are asked. None: the job has no limit."""
    id = environment["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in environment:
        # The id of one element may be that of the whole array.
        id = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    end = environment.get("SLURM_JOB_END_TIME")
    if end is None:
        end = _said(["squeue", "--noheader", f"--job={id}", "--format=%e"], {"SLURM_TIME_FORMAT": "%s"}).strip()
    return End(f"Slurm job {id}", float(end)) if end.isdecimal() else None


def pbs_end(environment: Mapping[str, str]) -> End | None:
    """Start and walltime as PBS Professional and OpenPBS tell them. None: no limit, or another PBS."""
    id = environment["PBS_JOBID"]
    try:
        job = json.loads(_said(["qstat", "-f", "-F", "json", id]))["Jobs"][id]
        started_t = time.mktime(time.strptime(job["stime"]))
        return End(f"PBS job {id}", started_t + _clock_s(str(job["Resource_List"]["walltime"])))
    except (ValueError, KeyError, TypeError):
        return None


def _clock_s(text: str) -> float:
    """Seconds of 1:30:00, or of a plain number."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def _said(command: list[str], more: Mapping[str, str] | None = None) -> str:
    """What a command prints, which is something; empty where the command does not exist."""
    try:
        done = subprocess.run(
            command, env={**os.environ, **(more or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer from error
    # What was killed and reaped with the processes of a slot has said nothing, and seems to have ended well.
    if done.returncode != 0 or not done.stdout:
        raise NoAnswer
    return done.stdout.decode(errors="replace")

"""A laboratory that is told to stop, or killed, leaves no process behind and keeps the results it has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def wait_until(holds, patience_s=60.0):
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_stopped_laboratory_leaves_no_process_and_keeps_its_results(tmp_path, number):
    store = tmp_path / "scs" / "cases.ndjson"
    command = [sys.executable, "-m", "windfall", "lab", "scs", "--out", str(tmp_path), "--jobs", "2", "--hours", "1"]
    lab = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: store.exists() and store.read_text().count("\n") >= 2)
        os.kill(lab.pid, number)
        complaint = lab.communicate(timeout=30)[1].decode()
        wait_until(lambda: gone(lab.pid), 10.0)
    finally:
        if not gone(lab.pid):
            os.killpg(lab.pid, signal.SIGKILL)
    assert "Traceback" not in complaint
    assert number != signal.SIGTERM or complaint.endswith("windfall: terminated\n")
    assert lab.returncode == CODES[number]
    assert len([json.loads(line) for line in store.read_text().splitlines()]) >= 2

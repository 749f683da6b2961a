"""`windfall-nova-scheduler` as a service of its own, with databases and a configuration file like an operator's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

CONFIG = """
[DEFAULT]
transport_url = fake:/
state_path = {folder}
[database]
connection = sqlite:///{folder}/cell.db
[api_database]
connection = sqlite:///{folder}/api.db
[oslo_concurrency]
lock_path = {folder}
[scheduler]
workers = 1
[placement]
auth_type = none
endpoint_override = http://127.0.0.1:9/placement
[windfall]
refresh_interval = 1
"""
START = "from windfall_nova.command import main; main()"
PATIENCE_S = 120.0


def test_the_command_serves_with_our_manager_and_waits_for_a_placement_that_is_away(tmp_path):
    (tmp_path / "nova.conf").write_text(CONFIG.format(folder=tmp_path))
    words = ["--config-file", str(tmp_path / "nova.conf")]
    for sync in (["api_db", "sync"], ["db", "sync", "--local_cell"]):
        manage = [sys.executable, "-c", "from nova.cmd.manage import main; main()", *words, *sync]
        subprocess.run(manage, check=True, capture_output=True, timeout=300)
    with open(tmp_path / "log", "wb") as log:
        service = subprocess.Popen([sys.executable, "-c", START, *words], stdout=log, stderr=log)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while (said := (tmp_path / "log").read_text()).count("windfall: hosts cannot be read: GET") < 2:
            assert service.poll() is None and time.monotonic() < until_s, said[-3000:]
            time.sleep(0.2)
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()

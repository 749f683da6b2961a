"""Debian's real BOINC client, as a process with a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.server.cluster import free_port

CONFIG = """<cc_config>
  <log_flags><task>1</task><file_xfer>1</file_xfer><sched_ops>1</sched_ops><unparsed_xml>1</unparsed_xml></log_flags>
  <options>
    <dont_contact_ref_site>1</dont_contact_ref_site><no_info_fetch>1</no_info_fetch><ncpus>2</ncpus>
    <report_results_immediately>1</report_results_immediately>
  </options>
</cc_config>
"""
PREFERENCES = """<global_preferences>
  <run_on_batteries>1</run_on_batteries><run_if_user_active>1</run_if_user_active>
  <suspend_cpu_usage>0</suspend_cpu_usage><max_ncpus_pct>100</max_ncpus_pct><cpu_usage_limit>100</cpu_usage_limit>
  <work_buf_min_days>0.01</work_buf_min_days><work_buf_additional_days>0</work_buf_additional_days>
  <disk_interval>60</disk_interval><disk_min_free_gb>0.01</disk_min_free_gb>
  <ram_max_used_busy_pct>90</ram_max_used_busy_pct><ram_max_used_idle_pct>90</ram_max_used_idle_pct>
</global_preferences>
"""
IMPATIENT = [
    "--sched_retry_delay_min", "1", "--sched_retry_delay_max", "3",
    "--pers_retry_delay_min", "1", "--pers_retry_delay_max", "3",
]  # fmt: skip


def require() -> None:
    """Skip, or fail in continuous integration, where the client or a compiler is absent."""
    missing = [name for name in ("boinc", "boinccmd", "gcc") if shutil.which(name) is None]
    if missing:
        text = f"not installed: {', '.join(missing)} (sudo apt-get install boinc-client gcc libc6-dev)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)


class BoincClient:
    """One volunteer's machine."""

    def __init__(self, folder: Path, url: str, key: str, proxy: str = "") -> None:
        self.folder, self.url, self.key = folder, url, key
        self._env = {**os.environ, "http_proxy": proxy} if proxy else None
        self.port = free_port()
        folder.mkdir(parents=True)
        (folder / "cc_config.xml").write_text(CONFIG)
        (folder / "global_prefs_override.xml").write_text(PREFERENCES)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["boinc", "--dir", str(self.folder), "--gui_rpc_port", str(self.port), "--allow_multiple_clients"]
        command += ["--no_gpus", "--skip_cpu_benchmarks", *IMPATIENT]
        if self.key and not list(self.folder.glob("account_*.xml")):
            command += ["--attach_project", self.url, self.key]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    def tell(self, *words: str) -> str:
        """What `boinccmd` answers; it finds the password in the client's folder."""
        command = ["boinccmd", "--host", f"127.0.0.1:{self.port}"]
        if (password := self.folder / "gui_rpc_auth.cfg").exists():
            command += ["--passwd", password.read_text().strip()]
        done = subprocess.run([*command, *words], cwd=self.folder, capture_output=True, text=True, timeout=30)
        return done.stdout + done.stderr

    def kill(self) -> None:
        """As a power failure does: nothing is saved."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.process.kill()
            self.process.wait()

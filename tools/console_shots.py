"""Records the pictures of the console in docs/images/console: every page, in light, in dark and on a phone.

Needs chromium (`make system`). Starts a server on an emulated cloud in a temporary directory, runs a bag with a
deadline, a bag with failures, a workflow, a fleet and a site of two hosts, and looks at them.

  python tools/console_shots.py [FOLDER]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
POOLS = """
[[pool]]
name = "cloud"
kind = "emulated"
time_scale = 60
seed = 1
[[pool.offer]]
name = "spot"
market = "spot"
cores = 2
price_usd = 0.031
limit = 8
cycle_s = 3600
lag_s = 60
when_taken = "hibernate"
[[pool.offer]]
name = "on-demand"
cores = 2
price_usd = 0.104
limit = 12
cycle_s = 3600
lag_s = 60

[[pool]]
name = "here"
kind = "local"
limit = 1
"""
FAILS = """
import sys, time
n = int(sys.argv[1])
time.sleep(0.15)
print("fitting", n)
n % 9 or sys.exit("no convergence after 200 steps")
"""
WORKFLOW = """
name = "nightly"
[[task]]
name = "fetch"
command = "true"
[[task]]
name = "split"
command = "true"
after = "fetch"
[[task]]
name = "left"
command = "sleep 0.3"
after = "split"
[[task]]
name = "right"
command = "false"
after = "split"
[[task]]
name = "join"
command = "true"
after = ["left", "right"]
[[task]]
name = "mail"
command = "true"
after = "join"
"""
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
MOST_HEIGHT = 1500
PAGES = {
    "overview": "overview", "job": "job/3", "workflow": "job/2", "tasks": "tasks/1?state=failed", "task": "task/1/8",
    "pools": "pools", "hosts": "hosts", "machines": "machines", "fleets": "fleets", "fleet": "fleet/night",
    "site": "site/lab", "money": "money", "decisions": "decisions", "policies": "policies", "plan": "plan",
    "system": "system",
}  # fmt: skip
"""Pictures, and where the console shows what is on them."""
SHOWS = {"task": "no convergence", "workflow": "nightly", "site": "rack-2"}


def until(holds: Callable[[], object], seconds: float = 400.0) -> None:
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s, "it does not come about"
        time.sleep(0.1)


class Stage:
    """A server in a folder of its own, and jobs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        # Names of hosts are taken per machine, by locks among temporary files.
        apart = {"HOME": str(folder), "TMPDIR": str(folder)}
        self.env = {**kept, **apart, "PYTHONPATH": str(ROOT / "src"), "PATH": path}
        (folder / "pools.toml").write_text(POOLS)
        (folder / "wf.toml").write_text(WORKFLOW)
        self.server = self.spawn("server", "--listen", "127.0.0.1:0", "--pools", "pools.toml")
        until(lambda: (folder / ".windfall" / "server.json").exists())
        self.agents: list[subprocess.Popen[bytes]] = []

    def spawn(self, *words: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "windfall", *words], cwd=self.folder, env=self.env, stdout=log, stderr=log
            )

    def type(self, *words: str) -> str:
        made = subprocess.run(
            [sys.executable, "-m", "windfall", *words], cwd=self.folder, env=self.env, capture_output=True, text=True
        )
        return made.stdout

    def jobs(self) -> None:
        """One that is over with failures, a workflow that is blocked, one that rents and runs."""
        python = "python3"
        self.type("submit", "--name", "fit", "--range", "1-36", "--max-failures", "1", "--", python, "-c", FAILS, "{}")
        self.type("submit", "--workflow", "wf.toml")
        rented = ("--pool", "cloud", "--deadline", "20m", "--budget", "2", "--estimate", "4s")
        require = ("--require", "Host.Memory >= 512 && Host.ErrorRate < 0.5")
        self.type(
            "submit",
            "--name",
            "sweep",
            "--range",
            "1-2000",
            *rented,
            *require,
            "--",
            "sh",
            "-c",
            "echo run {}; sleep 3",
        )
        self.type("fleet", "create", "night", "--pool", "cloud", "--budget", "5/h")
        for name in ("render", "convert"):
            shared = ("--fleet", "night", "--deadline", "7m", "--estimate", "3s", "--accept-late")
            self.type("submit", "--name", name, "--range", "1-900", *shared, "--", "sh", "-c", "echo {}; sleep 3")
        self.site()
        until(lambda: json.loads(self.type("status", "1", "--json"))["state"] == "failed")
        until(lambda: json.loads(self.type("status", "3", "--json"))["tasks"]["done"] >= 60)
        until(lambda: json.loads(self.type("fleet", "info", "night", "--json"))["machines"])

    def site(self) -> None:
        """Two hosts of one's own: workers in preemptible instances, and a command that took the place of one."""
        self.type("site", "create", "lab", "--instance-vcpu", "1", "--instance-ram", "1000")
        known = json.loads((self.folder / ".windfall" / "server.json").read_text())
        where = ("--server", known["url"], "--token-file", str(self.folder / ".windfall" / "token"))
        for name in ("rack-1", "rack-2"):
            offered = ("--vcpu", "4", "--ram", "8000", "--tag", "disk=ssd", "--dir", str(self.folder / name))
            self.agents.append(self.spawn("site", "agent", "--site", "lab", "--name", name, *where, *offered))
        until(lambda: self.told("site", "info", "lab")["hosts_live"] == 2)
        asked = ("--range", "1-40", "--require", 'Host.Pool == "lab"', "--estimate", "60s")
        self.type("submit", "--name", "survey", *asked, "--", "sleep", "600")
        until(lambda: self.told("site", "info", "lab")["preemptible"] >= 4)
        self.type("site", "request", "--vcpu", "2", "--ram", "4000", "--", "sleep", "600")

    def told(self, *words: str) -> Any:
        return json.loads(self.type(*words, "--json"))

    def link(self) -> str:
        return str(json.loads(self.type("console", "--json"))["url"])

    def close(self) -> None:
        for job in ("3", "render", "convert", "survey"):
            self.type("cancel", job)
        self.type("fleet", "drain", "night")
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            agent.wait(60)
        # Machines outlive their server: it has to give them back before it ends.
        until(lambda: not json.loads(self.type("pool", "info", "cloud", "--json"))["machines_there"], 120.0)
        self.server.terminate()
        self.server.wait(30)


def shoot(page: Any, path: Path, width: int) -> None:
    """The upper part of a page, in few colours: the repository keeps it."""
    from PIL import Image

    page.screenshot(path=str(path), full_page=True)
    with Image.open(path) as image:
        small = image.convert("RGB").crop((0, 0, width, min(image.height, MOST_HEIGHT)))
        # Frequent colours as they are, bright ones first; others, at the edges of letters, become the nearest of these.
        counts = small.getcolors(width * MOST_HEIGHT) or []
        ranked = sorted(((count * (1 + max(colour) - min(colour)), colour) for count, colour in counts), reverse=True)
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for _, colour in ranked[:256] for part in colour])
        small = small.quantize(palette=palette, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def simulate(page: Any) -> None:
    """Ask what deadlines cost; again, if the server had no time for it."""
    drawn = page.locator("section[aria-label=Forecast] svg")
    for _ in range(5):
        page.click("button[type=submit]:enabled")
        drawn.or_(page.locator("#banner.bad")).first.wait_for(timeout=300_000)
        if drawn.count():
            return
    raise AssertionError(page.inner_text("#banner"))


def record(stage: Stage, folder: Path) -> list[str]:
    """Look at every page in every way; what the browser complained about."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for look, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if look == "dark" else "light"
            )
            page = context.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
            link = stage.link()
            base = link.split("#")[0]
            page.goto(base, wait_until="domcontentloaded")
            page.wait_for_selector("input[name=token]")
            shoot(page, folder / f"signin-{look}.png", width)
            page.goto(link, wait_until="domcontentloaded")
            page.wait_for_selector("table")
            for name, to in PAGES.items():
                page.goto(f"{base}#/{to}", wait_until="domcontentloaded")
                page.wait_for_selector(f'html[data-page="{to.split("/")[0]}"] h1')
                if name == "policies":
                    page.fill("textarea", "Host.Memory >= 512 && Host.Slots > 1")
                    page.click("text=Try >> nth=-1")
                    page.wait_for_selector("section[aria-label=Outcome]")
                if name == "plan":
                    page.fill("input[name=tasks]", "40")
                    page.fill("input[name=deadlines]", "20m, 40m, 1h")
                    simulate(page)
                if name in SHOWS:
                    page.wait_for_selector(f"text={SHOWS[name]}")
                shoot(page, folder / f"{name}-{look}.png", width)
            context.close()
        browser.close()
    return wrong


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "console"
    with tempfile.TemporaryDirectory() as place:
        stage = Stage(Path(place))
        try:
            stage.jobs()
            wrong = record(stage, folder)
        finally:
            stage.close()
    print("\n".join(wrong) or f"recorded in {folder}; the browser had nothing to complain about")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

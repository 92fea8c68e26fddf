"""Pictures of the live page for README and docs, of a real training run with a planted fault (`make screenshots`).

Starts a service of its own with an empty database, trains the demo policy until its engine renormalises over a nucleus,
and waits until the alert and the diagnosis say so. Needs Chromium (Debian: apt-get install chromium).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from scripts.launch import COMMAND, stop, wait_until_ready

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "screenshots"
RUN: Final = "anagrams"
#: What is planted, from which step on, and how many steps are trained.
SCENARIO, ONSET, STEPS = "top-p", 60, 120
PORT: Final = 8917
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
#: name -> (path, theme, width, height); a height of 0 is the whole page.
PICTURES: Final = {
    "run": (f"/runs/{RUN}", "light", 1280, 1010),
    "run-dark": (f"/runs/{RUN}", "dark", 1280, 1010),
    "run-phone": (f"/runs/{RUN}", "light", 390, 844),
    "runs": ("/", "light", 1280, 420),
    "what-if": (f"/runs/{RUN}/what-if", "light", 1280, 900),
    "worst": (f"/runs/{RUN}/worst?a=icepop&b=opsm", "light", 1280, 760),
    "diagnosis": (f"/runs/{RUN}/diagnosis", "light", 1280, 640),
    "step": (f"/runs/{RUN}/steps/{STEPS - 20}", "light", 1280, 0),
}
#: Milliseconds after the last request, in which plots are painted.
PAINTED: Final = 1_000


def main() -> int:
    """Write every picture; answers 1 where there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print("make screenshots needs Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with trained() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for name, picture in PICTURES.items():
            print(f"{FOLDER.name}/{name}.png", flush=True)
            take(browser, url, FOLDER / f"{name}.png", *picture)
        browser.close()
    return 0


@contextmanager
def trained() -> Iterator[str]:
    """The URL of a service that has seen the whole run."""
    url, children = f"http://127.0.0.1:{PORT}", list[subprocess.Popen[bytes]]()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "service.log").open("wb") as log:
        settings = {"OFFPOLICY_DATABASE_URL": f"sqlite:///{folder}/pictures.db", "OFFPOLICY_KEEP_WORST": "3"}
        environment = os.environ | settings | {"OFFPOLICY_PORT": str(PORT), "OFFPOLICY_DEVICE": "cpu"}
        subprocess.run([COMMAND, "db", "upgrade"], env=environment, check=True)
        children.append(subprocess.Popen([COMMAND, "serve"], env=environment, stdout=log, stderr=log))
        try:
            wait_until_ready(url, children[0])
            began = time.monotonic()
            fault = ("--scenario", SCENARIO, "--onset", str(ONSET), "--steps", str(STEPS))
            subprocess.run([COMMAND, "demo", "--url", url, "--run", RUN, *fault], check=True)
            print(f"trained {STEPS} steps in {time.monotonic() - began:.0f} s", flush=True)
            yield url
        finally:
            stop(children)


def take(browser: Browser, url: str, file: Path, path: str, theme: str, width: int, height: int) -> None:
    """One page. Those that listen to events are never idle, so what they draw is waited for."""
    with browser.new_context(viewport={"width": width, "height": height or 900}) as context:
        page = context.new_page()
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        page.goto(url + path)
        page.wait_for_selector("#page > *")
        page.wait_for_timeout(PAINTED)
        page.screenshot(path=file, full_page=height == 0)


if __name__ == "__main__":
    sys.exit(main())

"""What is asked of a service over a large database: its read routes, its pages in a browser, scrapes and posts.

The first answer of each is of a process that has read nothing of the run yet; then the median of some more.
"""

import itertools
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.ingest import connected
from tests.benchmarks.large.figures import Figure
from tests.benchmarks.large.fill import TOKENS, Run
from tests.benchmarks.servers import Served
from tests.fixtures.chromium import FLAGS, PROGRAMS, VIEWPORT
from tests.fixtures.service import COMMAND, served, wait_until_ready
from tests.fixtures.tools import find_tool

TIMES: Final = 7
#: Milliseconds after which a page asks for nothing more by itself.
RESTED: Final = 1500
#: Seconds after a post in which what follows from it is done.
SETTLED: Final = 0.5
LIMIT_MS: Final = {"page": 200.0, "scrape": 300.0}
#: Of a page that has been drawn: when the last of its answers was there, milliseconds after it was asked for.
ANSWERED: Final = """() => Math.max(...performance.getEntriesByType("resource").map((each) => each.responseEnd))"""


def routes(run: Run) -> dict[str, str]:
    """Read routes by name, of one run and of all."""
    of, last = f"/v1/runs/{run.name}", run.steps - 1
    k3, all_fields = "field=gaps.mismatch.k3", "&".join(f"field={name}" for name in fields())
    return {
        "/v1/runs, worst first": "/v1/runs?order=worst&limit=200",
        "/v1/runs, those that match": "/v1/runs?q=run-1",
        "a run": of,
        "verdict": f"{of}/verdict",
        "rules": f"{of}/rules",
        "checks": f"{of}/checks",
        "diagnosis": f"{of}/diagnosis",
        "recommendations": f"{of}/recommendations",
        "what-if": f"{of}/whatif?method=opsm",
        "series of one figure, all steps": f"{of}/series?{k3}&by=step",
        "series of all that the page draws, all steps": f"{of}/series?{all_fields}&by=step",
        "series of the newest 1,000 steps": f"{of}/series?{k3}&by=step&from={max(0, last - 1000)}",
        "series of the oldest 1,000 steps": f"{of}/series?{k3}&by=step&to=1000",
        "series of a figure that is not kept narrow": f"{of}/series?field=gaps.mismatch.k2",
        "the first page of steps": f"{of}/steps?limit=100",
        "a page of steps in the middle": f"{of}/steps?limit=100&from={last // 2}",
        "the newest page of steps": f"{of}/steps?limit=100&from={max(0, last - 99)}",
        "the newest step": f"{of}/steps/{last}",
        "an old step": f"{of}/steps/{last // 2}",
        "histograms of the newest step": f"{of}/steps/{last}/histograms",
        "worst sequences of the newest step": f"{of}/worst?from={last}&to={last}&limit=1",
        "alerts of the run": f"/v1/alerts?run={run.name}&limit=500&merge=5",
        "alerts of all runs": "/v1/alerts?limit=500&merge=5",
    }


def pages(run: Run) -> dict[str, str]:
    """Pages by name."""
    return {
        "page of all runs": "/",
        f"page of {run.name}": f"/runs/{run.name}",
        "page of its newest step": f"/runs/{run.name}/steps/{run.steps - 1}",
        "page of its diagnosis": f"/runs/{run.name}/diagnosis",
        "page of its what-if": f"/runs/{run.name}/what-if",
        "page of its worst sequences": f"/runs/{run.name}/worst",
        "page of alerts": "/alerts",
        "page that compares it": f"/compare?runs={run.name},run-001",
    }


def fields() -> Sequence[str]:
    """Figures that a run's page draws, most of them."""
    methods = ("opsm", "icepop", "mis_token", "mis_sequence", "geometric_mask", "gspo", "grpo", "dppo_tv", "ipo")
    gaps = [f"gaps.{gap}.{name}" for gap in ("mismatch", "total") for name in ("k3", "ess")]
    others = ["gaps.staleness.k3", "attribution.mismatch", "attribution.staleness", "support.mismatch.k3"]
    columns = ["policy_version", "attempt", "verdict", "tokens"]
    return [*gaps, *others, *columns, *(f"methods.{name}.masked_token_fraction" for name in methods)]


@contextmanager
def serving(url: str, folder: Path, **settings: str) -> Iterator[Served]:
    """A service on the database, ready and at rest."""
    chosen = {"OFFPOLICY_DATABASE_URL": url, "OFFPOLICY_DEVICE": "cpu", "OFFPOLICY_LOG_LEVEL": "warning"} | settings
    with served([*COMMAND, "serve", "--port"], folder / "service.log", chosen) as running:
        wait_until_ready(running.url, running.process)
        yield Served(running.port, running.process, running.log)


def of_routes(service: Served, run: Run) -> list[Figure]:
    """Each read route, one after another."""
    return [repeated(name, lambda path=path: got(service, path)) for name, path in routes(run).items()]


def of_pages(service: Served, run: Run, others: Sequence[Run]) -> list[Figure]:
    """Each page in a browser that has no file of it: until the last answer that it asked for is there.

    Then those that read the whole run again, a step of which was stored just before; and the page of each of some other
    runs, of which nobody has asked anything.
    """
    program = next((found for found in map(find_tool, PROGRAMS) if found), None)
    if program is None:
        return []
    numbers, source = itertools.count(next_step(service, run)), Synthetic(TOKENS)

    def store() -> None:
        with connected(service, f"/v1/runs/{run.name}/batches?detail=none", 1) as load:
            load.seconds([source.body(next(numbers), minibatches=1)])
        time.sleep(SETTLED)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)

        def answered(path: str, before: Callable[[], None] = lambda: None) -> float:
            before()
            # Nothing listens to what the browser tells of each request: that takes a processor from it.
            with browser.new_context(viewport=VIEWPORT) as context:
                page = context.new_page()
                page.goto(service.url + path)
                page.wait_for_timeout(RESTED)
                return float(page.evaluate(ANSWERED))

        all_of_them, limit = pages(run), LIMIT_MS["page"]
        still = [Figure.of(name, [answered(path) for _ in range(TIMES)], limit) for name, path in all_of_them.items()]
        moved = [
            Figure.of(f"{name}, of which a step just came", [answered(path, store) for _ in range(TIMES)], limit)
            for name, path in all_of_them.items()
            if run.name in path
        ]
        unseen = [answered(f"/runs/{other.name}") for other in others]
        browser.close()
    never = f"page of a run of {others[0].steps:,} steps that nobody has looked at"
    return [*still, *moved, Figure.of(never, unseen, limit)]


def of_scrapes(service: Served, runs: Sequence[Run]) -> list[Figure]:
    """A scrape by a process that has made none, one where nothing moved, and one where every run has moved."""
    first = repeated("a scrape of 200 runs, none of which moved", lambda: got(service, "/metrics"))
    found = [Figure("the first scrape of a process", first.first, [first.first], LIMIT_MS["scrape"]), first]
    source, moved = Synthetic(TOKENS), list[float]()
    following = {run.name: next_step(service, run) for run in runs}
    for turn in range(3):
        for name, step in following.items():
            with connected(service, f"/v1/runs/{name}/batches?detail=none", 1) as load:
                load.seconds([source.body(step + turn, minibatches=1)])
        moved.append(milliseconds(lambda: got(service, "/metrics")))
    return [*found, Figure.of("a scrape of 200 runs that all moved", moved, LIMIT_MS["scrape"])]


def of_posts(service: Served, run: Run) -> Figure:
    """One post after another of a step of one shard."""
    source, first = Synthetic(TOKENS), next_step(service, run)
    with connected(service, f"/v1/runs/{run.name}/batches?detail=none", 1) as load:
        taken = [1e3 * load.seconds([source.body(first + step, minibatches=1)]) for step in range(60)]
    return Figure.of("a post of one shard, stored and judged", taken)


def next_step(service: Served, run: Run) -> int:
    """The step after all that are stored: a database that was filled may have been posted to since."""
    return int(json.loads(got(service, f"/v1/runs/{run.name}"))["last_step"]) + 1


def got(service: Served, path: str) -> bytes:
    """The answer of a GET; a refusal is raised."""
    with urllib.request.urlopen(service.url + urllib.parse.quote(path, safe="/?&=,.")) as answer:
        body: bytes = answer.read()
        return body


def repeated(what: str, work: Callable[[], object], limit: float | None = None) -> Figure:
    """The work, again and again."""
    return Figure.of(what, [milliseconds(work) for _ in range(TIMES)], limit)


def milliseconds(work: Callable[[], object]) -> float:
    """That it takes."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)

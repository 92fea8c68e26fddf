"""Scrapes: the documents of /metrics, of this process, or of all workers whichever of them is asked.

A worker that is asked has its siblings write what they have counted, and waits for them for half a second at most.
"""

import asyncio
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import Format
from offpolicy_monitor.exposition.runs import Detail, RunExposition
from offpolicy_monitor.server.exported import Exported
from offpolicy_monitor.server.http.documents import Document, Documents
from offpolicy_monitor.server.http.shared import Shared
from offpolicy_monitor.server.workers.membership import Membership
from offpolicy_monitor.server.workers.published import WITHIN, Published
from offpolicy_monitor.settings import Settings


@dataclass(frozen=True)
class Scrapes:
    """`published`: the counts of all workers; None where there is one process."""

    documents: Shared[Format, Document]
    published: Published | None = None

    async def publish(self) -> int:
        """Leave what was counted to siblings, and to who takes the place of this worker."""
        if self.published is not None:
            await asyncio.to_thread(self.published.publish)
        return 0


def scrapes_of(
    membership: Membership, exported: Exported, registry: CollectorRegistry, counters: RunCounters, settings: Settings
) -> Scrapes:
    """Those of one process, or of one worker of several. Made inside a running event loop."""
    siblings, detail = membership.siblings, detail_of(settings)
    published = membership.published(registry, counters, settings.max_exported_runs)
    if published is None:
        return Scrapes(Shared(Documents(registry, RunExposition(exported, counters, detail)).make))
    documents = Documents(published, RunExposition(exported, published.runs, detail))
    answering: set[int] = set()

    async def ask() -> None:
        answering.clear()
        answering.update(await siblings.ask("publish", WITHIN))

    def make(format: Format) -> Document:
        published.gather(answering)
        return documents.make(format)

    scrapes = Scrapes(Shared(make, ask), published)
    siblings.answer("publish", lambda _: scrapes.publish())
    return scrapes


def detail_of(settings: Settings) -> Detail:
    """How much a scrape shows of each run."""
    return Detail(settings.histogram_buckets == "full", settings.alert_gauges == "all")

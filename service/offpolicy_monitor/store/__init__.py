"""The durable side of the service: each shard once, each step merged, every reader's question answered.

Queries live here and nowhere else. Knows summaries; knows neither HTTP nor torch.

SQLAlchemy is imported with what needs a database, when that is asked for: a helper, which has none, prepares shards.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from offpolicy_monitor.store.rows.records import Outdated, Receipt, ShardKey, ShardRecord, StepKey
from offpolicy_monitor.store.write.prepare import headline_of, prepared, prepared_elsewhere

if TYPE_CHECKING:
    from offpolicy_monitor.store.leader import Leader, leader_of
    from offpolicy_monitor.store.rows.cursors import Page
    from offpolicy_monitor.store.rows.exported import ExportedRun
    from offpolicy_monitor.store.rows.gradient_steps import GradientStep
    from offpolicy_monitor.store.rows.overviews import MOST_RUNS, Table
    from offpolicy_monitor.store.rows.views import RunView
    from offpolicy_monitor.store.space import room
    from offpolicy_monitor.store.store import Store
    from offpolicy_monitor.store.upkeep import Turn
    from offpolicy_monitor.store.write.known import Known, NewRuns

__all__ = [
    "MOST_RUNS",
    "ExportedRun",
    "GradientStep",
    "Known",
    "Leader",
    "NewRuns",
    "Outdated",
    "Page",
    "Receipt",
    "RunView",
    "ShardKey",
    "ShardRecord",
    "StepKey",
    "Store",
    "Table",
    "Turn",
    "headline_of",
    "leader_of",
    "prepared",
    "prepared_elsewhere",
    "room",
]

#: What is imported when it is asked for, and the module that has it.
_LATER: Final = {
    "MOST_RUNS": "rows.overviews",
    "ExportedRun": "rows.exported",
    "GradientStep": "rows.gradient_steps",
    "Known": "write.known",
    "Leader": "leader",
    "NewRuns": "write.known",
    "Page": "rows.cursors",
    "RunView": "rows.views",
    "Store": "store",
    "Table": "rows.overviews",
    "Turn": "upkeep",
    "leader_of": "leader",
    "room": "space",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)

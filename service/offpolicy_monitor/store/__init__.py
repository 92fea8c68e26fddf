"""The durable side of the service: each shard once, each step merged, every reader's question answered.

Queries live here and nowhere else. Knows summaries; knows neither HTTP nor torch.
"""

from offpolicy_monitor.store.leader import Leader, leader_of
from offpolicy_monitor.store.rows.cursors import Page
from offpolicy_monitor.store.rows.exported import ExportedRun
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.overviews import MOST_RUNS, Table
from offpolicy_monitor.store.rows.records import Outdated, Receipt, ShardKey, ShardRecord, StepKey
from offpolicy_monitor.store.rows.views import RunView
from offpolicy_monitor.store.space import room
from offpolicy_monitor.store.store import Store
from offpolicy_monitor.store.upkeep import Turn
from offpolicy_monitor.store.write.known import Known, NewRuns
from offpolicy_monitor.store.write.prepare import headline_of, prepared, prepared_elsewhere

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

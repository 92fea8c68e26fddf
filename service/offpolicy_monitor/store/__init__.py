"""The durable side of the service: each shard once, each step merged, every reader's question answered.

Queries live here and nowhere else. Knows summaries; knows neither HTTP nor torch.
"""

from offpolicy_monitor.store.exported import ExportedRun
from offpolicy_monitor.store.known import Known
from offpolicy_monitor.store.leading import Leader, leader_of
from offpolicy_monitor.store.ledger import GradientStep
from offpolicy_monitor.store.paging import Page
from offpolicy_monitor.store.preparing import prepared
from offpolicy_monitor.store.records import Place, Receipt, ShardKey, ShardRecord
from offpolicy_monitor.store.store import Store
from offpolicy_monitor.store.upkeep import Turn

__all__ = [
    "ExportedRun",
    "GradientStep",
    "Known",
    "Leader",
    "Page",
    "Place",
    "Receipt",
    "ShardKey",
    "ShardRecord",
    "Store",
    "Turn",
    "leader_of",
    "prepared",
]

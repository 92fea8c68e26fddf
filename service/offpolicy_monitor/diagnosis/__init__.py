"""Evidence -> ranked hypotheses for what causes the mismatch. Pure: it knows neither tokens nor the database.

evidence flattens the figures of merged steps; over_steps and few add what no merge has; scores weighs them; hypotheses
is the table of what can be named; rank puts them in order.
"""

from offpolicy_monitor.diagnosis.evidence import Evidence, Limits, collect
from offpolicy_monitor.diagnosis.rank import diagnose

__all__ = ["Evidence", "Limits", "collect", "diagnose"]

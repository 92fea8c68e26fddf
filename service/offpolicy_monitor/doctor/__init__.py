"""What is wrong with the way a run is posted, and the line to change: of what has arrived of its newest steps.

posted is what is looked at, marks are questions about it, checks the table of what can be found. Pure: it knows neither
the database nor HTTP, and judges no policy; what causes a mismatch that is posted rightly is the diagnosis' to say.
"""

from offpolicy_monitor.doctor.checks import CHECKS, Check, look
from offpolicy_monitor.doctor.posted import Arrival, Posted

__all__ = ["CHECKS", "Arrival", "Check", "Posted", "look"]

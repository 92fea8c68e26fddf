"""Shapes of the answers, for the OpenAPI document only: answers are built from plain values and not checked again.

A module for each thing that is answered. Further fields may come; the ones listed stay.
"""

from offpolicy_monitor.server.models.alerts import Alerts, Rules
from offpolicy_monitor.server.models.batches import BatchAnswer, BatchReceipt, EvaluateAnswer
from offpolicy_monitor.server.models.figures import Catalogue
from offpolicy_monitor.server.models.runs import Checks, Diagnosis, Run, Runs, Verdict
from offpolicy_monitor.server.models.series import Series, SeveralSeries, Tables
from offpolicy_monitor.server.models.shape import ProblemDocument
from offpolicy_monitor.server.models.steps import Step, StepHistograms, Steps, Worst
from offpolicy_monitor.server.models.whatif import Recommendations, WhatIf

__all__ = [
    "Alerts",
    "BatchAnswer",
    "BatchReceipt",
    "Catalogue",
    "Checks",
    "Diagnosis",
    "EvaluateAnswer",
    "ProblemDocument",
    "Recommendations",
    "Rules",
    "Run",
    "Runs",
    "Series",
    "SeveralSeries",
    "Step",
    "StepHistograms",
    "Steps",
    "Tables",
    "Verdict",
    "WhatIf",
    "Worst",
]

"""Turns values into JSON answers. NaN and infinity become null whatever made them; floats keep full precision."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from offpolicy_monitor.alerts import RULES, WALL_CLOCK_RULES, Rule, WallClockRule
from offpolicy_monitor.alerts.episodes import was_told
from offpolicy_monitor.pipeline.values import Outcome
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.timestamps import timestamp

_RULES: Final[Mapping[str, Rule | WallClockRule]] = {rule.name: rule for rule in (*RULES, *WALL_CLOCK_RULES)}
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def render(value: Any) -> bytes:
    """JSON bytes of a value."""
    return orjson.dumps(value, option=OPTIONS)


def json_response(value: Any) -> Response:
    """A 200 with this value as JSON."""
    return Response(render(value), media_type="application/json")


def figures(summary: StepSummary) -> bytes:
    """The figures of a shard as JSON. Absent ones are left out, so that a reader need not tell null from missing."""
    found = summary.told(render, orjson.Fragment)
    return render({name: value for name, value in found.items() if value is not None})


def nothing(summary: StepSummary) -> bytes:
    """No figures, for who does not look at them: to read them off a summary takes longer than to make it."""
    return b"{}"


def batch_answer(run: str, outcome: Outcome, public_url: str) -> bytes:
    """The answer to a batch, as protocol.md lists it: where it stands, then the figures of this shard alone.

    `verdict` and `alerts` are of the run as it stands after this shard.

    The first half of a two-phase post is measured and answered alike, with `stored` false: it is kept in memory only,
    counts as no received shard, and its step is not complete by it.
    """
    envelope, receipt = outcome.envelope, outcome.receipt
    stands = {
        "run": run,
        "step": envelope.step,
        "minibatch": envelope.minibatch,
        "shard": envelope.shard,
        "stored": receipt is not None,
        "duplicate": receipt is not None and receipt.duplicate,
        "received_shards": receipt.received_shards if receipt else 0,
        "shards": receipt.shards if receipt else envelope.shards,
        "complete": receipt is not None and receipt.complete,
    }
    said = receipt or outcome.known
    verdict = {
        "verdict": said.verdict if said else "accept",
        "alerts": [alert_answer(row, public_url) for row in said.alerts] if said else [],
    }
    return _joined(render(stands), outcome.told, render(verdict))


def _joined(*objects: bytes) -> bytes:
    """JSON objects as one, that of all their members."""
    return b"{%s}" % b",".join(members for members in (text[1:-1] for text in objects) if members)


def alert_answer(row: Mapping[str, Any], public_url: str) -> dict[str, Any]:
    """An alert as it is told: where it stands, what its rule says, and what to do about it."""
    names = (
        "id", "alert", "severity", "state", "run", "since_step", "last_step", "active_step", "quiet_since",
        "resolved_step", "breach_steps", "value", "peak", "threshold", "message", "inhibited_by", "evidence",
    )  # fmt: skip
    times = {name: timestamp(row[name]) for name in ("started_at", "active_at", "resolved_at")}
    known = {name: row[name] for name in (*names, "joined") if name in row}
    if row["state"] != "active" and "quiet_since" in known:
        known["quiet_since"] = None  # that it may come back is of no use to anybody
    if "told_from" in row:
        known["told"] = was_told(row["told_from"])
    return {
        **known,
        **explained(row["alert"], public_url),
        **times,
    }


def rule_answer(state: Mapping[str, Any], public_url: str) -> dict[str, Any]:
    """What one severity of a rule says, with what it is."""
    return {**state, **explained(state["alert"], public_url)}


def explained(alert: str, public_url: str) -> dict[str, Any]:
    """What a rule is; an alert of a rule that an earlier version had keeps its name alone."""
    rule = _RULES.get(alert)
    known = {"expression": rule.expression, "summary": rule.summary} if rule else {"expression": "", "summary": ""}
    return {**known, "half": getattr(rule, "half", None), "runbook": f"{public_url}/runbook#{alert}"}

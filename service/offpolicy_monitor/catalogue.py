"""Rows that the command line lists: method presets and settings, as plain values ready for a table or for JSON."""

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from offpolicy_monitor.methods import METHODS, PRESETS, MethodRow
from offpolicy_monitor.settings import Settings

SHOWN_FIRST = ("method", "gap", "level")
#: The address of a SQLite file that is shown as it is. What holds more is read by SQLAlchemy, whose import takes longer
#: than all else that is listed.
PLAIN_FILE: Final = re.compile(r"sqlite:///[\w./~-]+", re.ASCII)


def preset_rows(rows: Sequence[MethodRow] = PRESETS) -> list[dict[str, Any]]:
    """One row per preset: its name, method, gap, level, thresholds, their source, and what the method does."""
    return [{**_preset_row(row.name, row.spec), "source": row.source} for row in rows]


def _preset_row(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    thresholds = " ".join(f"{key}={_short(value)}" for key, value in spec.items() if key not in SHOWN_FIRST)
    shown = {key: spec[key] for key in SHOWN_FIRST}
    return {"name": name, **shown, "thresholds": thresholds, "summary": METHODS[spec["method"]].summary}


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_rows(settings: Settings) -> list[dict[str, Any]]:
    """One row per setting: environment variable, value in force (secrets hidden), what it means."""
    return [
        {
            "variable": Settings.variable(name),
            "value": _shown(name, getattr(settings, name)),
            "meaning": field.description or "",
        }
        for name, field in Settings.model_fields.items()
    ]


def _shown(name: str, value: object) -> object:
    if name == "webhook_url" and value is not None:
        # Where the receiver is no secret; the path often is one.
        parts = urlsplit(str(value))
        return f"{parts.scheme}://{parts.netloc}/..."
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return without_password(str(value)) if name == "database_url" else value


def without_password(url: str) -> str:
    """The address of a database, fit to be shown."""
    if PLAIN_FILE.fullmatch(url):
        return url
    from offpolicy_monitor.store.session import parse_url

    return parse_url(url).render_as_string(hide_password=True)

"""Where the files that are not Python live: migrations, dashboards, the runbook.

In a checkout they stand where they are at the repository root; in an installed wheel they are under
`offpolicy_monitor/_resources`. Knows only that rule, never what is in them.
"""

from pathlib import Path

from offpolicy_monitor.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parent
ROOTS = (PACKAGE / "_resources", PACKAGE.parents[1])


def path(name: str) -> Path:
    """The folder or file `name` ("migrations", "docs/runbook.md").

    Raises ConfigurationError where neither the wheel nor the checkout holds it.
    """
    for root in ROOTS:
        if (root / name).exists():
            return root / name
    raise ConfigurationError(f"{name} is missing from this installation; reinstall offpolicy-monitor")

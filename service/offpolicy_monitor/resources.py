"""Where the files that are not Python live: migrations, dashboards.

In a checkout they are folders at the repository root; in an installed wheel they are under
`offpolicy_monitor/_resources`. Knows only that rule, never what is in the folders.
"""

from pathlib import Path

from offpolicy_monitor.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parent
PLACES = (PACKAGE / "_resources", PACKAGE.parents[1])


def path(name: str) -> Path:
    """The folder `name` ("migrations", "dashboards").

    Raises ConfigurationError where neither the wheel nor the checkout holds it.
    """
    for place in PLACES:
        if (place / name).is_dir():
            return place / name
    raise ConfigurationError(f"the {name} folder is missing from this installation; reinstall offpolicy-monitor")

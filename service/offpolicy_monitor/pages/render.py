"""Templates to HTML. Every value is escaped; links are relative, so that a proxy may serve the pages below a path."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from offpolicy_monitor._version import __version__
from offpolicy_monitor.pages import assets

_TEMPLATES: Final = Environment(
    loader=PackageLoader("offpolicy_monitor.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

#: What a script needs that draws plots.
_PLOTS: Final = "charts/uplot.js"


@dataclass(frozen=True)
class Theme:
    """How a page begins: the colour schemes that it is drawn in, and when the dark colours hold."""

    schemes: str
    dark: str


#: The system's theme, and by its name one that was chosen.
SYSTEM: Final = Theme("light dark", "(prefers-color-scheme: dark)")
CHOSEN: Final[Mapping[str, Theme]] = {"light": Theme("light", "not all"), "dark": Theme("dark", "all")}


def page(template: str, path: str, script: str = "", theme: str = "", **values: Any) -> str:
    """A page that is served at `path` ("/runs/r1"), below whatever prefix a proxy has, drawn by pages/SCRIPT.js.

    `theme` is "light" or "dark"; anything else is the system's.
    """
    depth = path.count("/") - 1
    root, chosen = "../" * depth or "./", CHOSEN.get(theme, SYSTEM)
    bundle = f"bundles/{script}.js" if script else None
    files = {"static": f"static/{assets.VERSION}/", "style": assets.STYLE, "dark": assets.DARK, "script": bundle}
    plots = assets.PLOTTING if _PLOTS in assets.imported(bundle) else None
    return rendered(template, root=root, theme=chosen, plots=plots, **files, **values)


def rendered(template: str, **values: Any) -> str:
    """A template with its values, and the release."""
    return _TEMPLATES.get_template(template).render(version=__version__, **values)

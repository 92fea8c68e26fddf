"""Templates to HTML. Every value is escaped; links are relative, so that a proxy may serve the pages below a path."""

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
STYLES: Final = tuple(name for name in assets.FILES if name.startswith("style/"))


def page(template: str, path: str, script: str = "", **values: Any) -> str:
    """A page that is served at `path` ("/runs/r1"), below whatever prefix a proxy has, drawn by pages/SCRIPT.js.

    What its script imports is named too, so that a browser asks for all at once and not level by level.
    """
    depth = path.count("/") - 1
    static = f"static/{assets.VERSION}/"
    scripts = assets.imported(f"pages/{script}.js") if script else ()
    return rendered(template, root="../" * depth or "./", static=static, styles=STYLES, scripts=scripts, **values)


def rendered(template: str, **values: Any) -> str:
    """A template with its values, and the release."""
    return _TEMPLATES.get_template(template).render(version=__version__, **values)

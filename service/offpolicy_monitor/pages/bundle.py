"""Bundles: the scripts of a page as one file, and all styles as another, so that a browser asks for two and not sixty.

A script becomes a function's body, which answers what the script exports; the page's own comes last, as it is. So
scripts are written as modules, one for each idea, and nobody builds anything. They keep to what is read here: an import
names what it takes, in braces, from a relative path; an export stands before a `const` of one name, a function or a
class.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Final

_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "(\.{1,2}/[^"]+)";$', re.M)
_EXPORT: Final = re.compile(r"^export (const|function|async function|class) ([\w$]+)", re.M)
#: What there is of either where a script keeps to other forms of them.
_OTHER: Final = re.compile(r"^(import|export)\b.*", re.M)

#: The text of a file by its path.
Read = Callable[[str], str]


def script(name: str, read: Read) -> str:
    """A script and all that it imports as one module.

    Raises KeyError where one imports a file that there is not, ValueError where it does so in another form.
    """
    needed = order(name, read)
    parts = [_function(one, read(one)) for one in needed[:-1]]
    return "\n".join(["const modules = {};", *parts, _checked(name, _without_imports(name, read(name)))])


def order(name: str, read: Read) -> Sequence[str]:
    """The scripts that a script needs, itself last, each after those that it needs itself.

    ValueError where one needs itself by way of others.
    """
    found: dict[str, None] = {}

    def visit(one: str, needing: Sequence[str]) -> None:
        if one in needing:
            raise ValueError(f"{one} imports itself by way of {', '.join(needing[needing.index(one) + 1 :])}")
        for _, relative in _IMPORT.findall(read(one)):
            needed = _beside(one, relative)
            if needed not in found:
                visit(needed, [*needing, one])
        found[one] = None

    visit(name, [])
    return list(found)


def styles(names: Sequence[str], read: Read) -> str:
    """Styles one after another."""
    return "\n".join(f"/* {name} */\n{read(name)}" for name in names)


def _function(name: str, text: str) -> str:
    """A script as a function that is called at once."""
    exported = ", ".join(found for _, found in _EXPORT.findall(text))
    body = _checked(name, _EXPORT.sub(r"\1 \2", _without_imports(name, text)))
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();'


def _without_imports(name: str, text: str) -> str:
    return _IMPORT.sub(lambda found: f'const {{{found[1]}}} = modules["{_beside(name, found[2])}"];', text)


def _checked(name: str, text: str) -> str:
    if found := _OTHER.search(text):
        raise ValueError(f"{name}: a form of import or export that a bundle does not know: {found[0]}")
    return text


def _beside(name: str, relative: str) -> str:
    """The file that a script means by a relative path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), relative))

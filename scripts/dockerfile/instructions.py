"""The instructions of a Dockerfile, in order: names and arguments, nothing of what they mean."""

import re
from collections.abc import Iterator, Mapping

VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, arguments) in order, with continued lines joined and comments dropped."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, arguments = line.strip().partition(" ")
            yield name.upper(), arguments.strip()


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with $NAME and ${NAME} replaced, by nothing where a name is not set."""
    return VARIABLE.sub(lambda found: variables.get(found[1], ""), text)

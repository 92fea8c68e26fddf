"""Values and texts that readers of JSON stumble over, put in place of each value of a text that is right."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

#: JSON texts. Python's own parser alone: recursion, digits past int's limit, and constants that are no JSON.
VALUES: Final = (
    "null", "true", "0", "-0.0", "-1", "1e400", "-1e39", "0.1", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "1" + "0" * 400, "1" * 5000, "NaN", "Infinity", '""', '"x"', '"\\ud800"', '"\\u0000"',
    '"\\u001b[2J"', '"1e400"', '"' + "9" * 5000 + '"', '"' + "a" * 5000 + '"', "[]", "[[]]", "[null]", "[[1], 2]",
    "{}", '{"": 0}', '{"\\ud800": 1}', "[" * 100 + "]" * 100, "[" * 2000 + "]" * 2000,
    '{"a":' * 2000 + "1" + "}" * 2000,
)  # fmt: skip
_HERE: Final = "@here@"
#: Between the files of a seed that is several.
FILES: Final = b"\x1e"


def of_seeds(seeds: Sequence[bytes]) -> Iterator[bytes]:
    """The seeds with each value of a first line replaced; of several files, the first line of each."""
    for seed in seeds:
        files = seed.split(FILES)
        for index, file in enumerate(files):
            first, *others = file.splitlines(keepends=True)
            end = b"\n" * first.endswith(b"\n")
            for line in variants(first):
                yield FILES.join([*files[:index], b"".join([line, end, *others]), *files[index + 1 :]])


def variants(text: bytes) -> Iterator[bytes]:
    """The text with each of its values, and each of its keys, replaced by each of VALUES; and with each left out."""
    for changed in _changed(json.loads(text)):
        marked = json.dumps(changed)
        for value in VALUES if f'"{_HERE}"' in marked else ("",):
            yield marked.replace(f'"{_HERE}"', value).encode()


def _changed(node: Any) -> Iterator[Any]:
    """The document with something else at one place; of a list its first entry stands for all."""
    yield _HERE
    if isinstance(node, dict):
        for key, child in node.items():
            yield from ({**node, key: other} for other in _changed(child))
            yield {name: value for name, value in node.items() if name != key}
            yield {(_HERE if name == key else name): value for name, value in node.items()}
    if isinstance(node, list) and node:
        yield from ([other, *node[1:]] for other in _changed(node[0]))
        yield node[1:]
        yield [*node, *node]

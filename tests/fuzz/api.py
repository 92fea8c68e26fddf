"""Calls of an API made from its OpenAPI document, and what that document promises of their answers.

Knows the document alone: operations, parameters and answers that come are called and checked without a change here.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import jsonschema
from hypothesis import strategies as st

PROBLEM: Final = "application/problem+json"
#: Seconds that a call may take.
WITHIN: Final = 10.0
#: Values that no parameter expects, and some that are nearly right.
MEAN: Final = (
    "", " ", "0", "-1", "1.5", "1e400", "nan", "inf", "true", "null", "9223372036854775807", "9223372036854775808",
    "9" * 5000, "\u0663", "\x00", "a\x00b", "\r\nX: y", "\x1b[2J", "\ud7ff\uffff", "\U0001f600", "..", "../..", "%00",
    "<b>", "'\"", "{run}", "a" * 129, "a" * 5000, "(", "(a+)+$", "(?:a{9999}){9999}", "=cmd", "WyJhIl0", "WzFd",
    "WzEsMl0",
)  # fmt: skip
#: What a body that is no object of its schema may be.
MEAN_BODIES: Final = (
    b"", b"{", b"[]", b"null", b"1" * 5000, b"[" * 5000, b'{"":0}', b"\xff\xfe", b'{"a":"\\ud800"}', b"\x00" * 64,
)  # fmt: skip


class Answer(Protocol):
    """An answer, as httpx has it."""

    status_code: int
    headers: Any
    content: bytes


@dataclass(frozen=True)
class Call:
    """One request of an operation; `path` is the template, `values` what stands for its names."""

    method: str
    path: str
    values: Mapping[str, str] = field(default_factory=dict)
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    media_type: str = "application/json"


class Api:
    """The operations of a document; `known` has values that a parameter of that name may have."""

    def __init__(self, document: Mapping[str, Any], known: Mapping[str, Sequence[str]]) -> None:
        self.document, self.known = document, known

    def operations(self) -> Iterator[tuple[str, str]]:
        """Method and path of each; without what streams for ever, and what takes the data away."""
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                if method != "delete" and "text/event-stream" not in operation["responses"]["200"].get("content", {}):
                    yield method.upper(), path

    def calls(self, method: str, path: str) -> st.SearchStrategy[Call]:
        """Calls of one operation, of which most values are right."""
        operation = self.document["paths"][path][method.lower()]
        parameters = operation.get("parameters", [])
        inside = {p["name"]: self._texts(p) for p in parameters if p["in"] == "path"}
        asked = {p["name"]: self._texts(p) for p in parameters if p["in"] == "query"}
        always = {p["name"]: asked.pop(p["name"]) for p in parameters if p["in"] == "query" and p.get("required")}
        once = st.fixed_dictionaries(always, optional=asked).map(lambda query: list(query.items()))
        query = once | once.map(lambda query: [*query, *query[:1]])
        content = operation.get("requestBody", {}).get("content", {})
        bodies = st.none() if not content else self._bodies(content["application/json"])
        return st.builds(Call, st.just(method), st.just(path), st.fixed_dictionaries(inside), query, bodies)

    def _texts(self, parameter: Mapping[str, Any]) -> st.SearchStrategy[str]:
        """Values of a parameter: known ones, those of its schema, mean ones."""
        right = [*self.known.get(parameter["name"], ()), *_allowed(parameter["schema"])] or ["1"]
        return st.integers(0, 9).flatmap(
            lambda dice: st.sampled_from(right) if dice < 8 else st.sampled_from(MEAN) | st.text(max_size=8)
        )

    def _bodies(self, content: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
        examples = [one["value"] for one in content.get("examples", {}).values()] or content["schema"].get(
            "examples", []
        )
        members = {name: _values(one) for name, one in content["schema"].get("properties", {}).items()}
        members |= {name: VALUES | st.just(example[name]) for example in examples for name in example}
        documents = st.dictionaries(st.text(max_size=3), VALUES, max_size=1).flatmap(
            lambda other: st.fixed_dictionaries({}, optional=members).map(lambda known: {**other, **known})
        )
        whole = [json.dumps(example).encode() for example in examples] or [b"{}"]
        texts = documents.map(lambda document: json.dumps(document).encode())
        return texts | st.sampled_from(whole) | st.sampled_from(MEAN_BODIES) | st.binary(max_size=20)

    def faults(self, call: Call, answer: Answer, seconds: float) -> list[str]:
        """What an answer has that the document does not promise."""
        declared = self.document["paths"][call.path][call.method.lower()]["responses"]
        status, media_type = str(answer.status_code), answer.headers.get("content-type", "").partition(";")[0]
        found = [f"took {seconds:.1f} s"] if seconds > WITHIN else []
        if status not in declared:
            # What no route answers is declared by none: a name with a slash, or without anything, is another path.
            if not (status in ("404", "405", "307") and _is_elsewhere(call)):
                found.append(f"{status} is not declared")
            return found
        content = declared[status].get("content", {})
        if content and media_type not in content:
            found.append(f"{media_type} is not declared for {status}")
        if media_type == PROBLEM and json.loads(answer.content)["status"] != answer.status_code:
            found.append("the problem has another status")
        schema = content.get(media_type, {}).get("schema")
        return found + (self._violations(schema, answer.content) if schema else [])

    def _violations(self, schema: Mapping[str, Any], content: bytes) -> list[str]:
        whole = {**schema, "components": self.document["components"]}
        value = json.loads(content, parse_constant=_no_constant)
        checker = jsonschema.Draft202012Validator(whole)
        return [f"{error.json_path}: {error.message:.200}" for error in checker.iter_errors(value)][:3]

    def check(self, call: Call, send: Callable[[Call], Answer]) -> Answer:
        """Send a call; AssertionError for what the document does not promise."""
        began = time.monotonic()
        answer = send(call)
        faults = self.faults(call, answer, time.monotonic() - began)
        assert not faults, f"{call}: {answer.status_code} {answer.content[:300]!r}: {'; '.join(faults)}"
        return answer


VALUES: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**64) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | st.just([-1.0, -0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


def _values(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a member of a body: by its schema, or any."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | VALUES
    if schema.get("type") == "boolean":
        return st.booleans()
    return VALUES


def _allowed(schema: Mapping[str, Any]) -> list[str]:
    """A few values that a schema allows."""
    found = [str(value) for value in schema.get("enum", ())]
    for inner in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        found += _allowed(inner)
    if schema.get("type") in ("integer", "number"):
        least, most = schema.get("minimum", 0), schema.get("maximum", 3)
        found += [str(least), str(least + 1), str(most)] if schema["type"] == "integer" else ["0.1", "2"]
    return found


def _is_elsewhere(call: Call) -> bool:
    """Whether the address is none of the operation's: a name in it is empty, or has a slash or dots."""
    return any(value in ("", ".", "..") or "/" in value for value in call.values.values())


def _no_constant(name: str) -> object:
    raise AssertionError(f"{name} is no JSON")

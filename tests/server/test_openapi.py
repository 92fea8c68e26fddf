"""The OpenAPI document: its examples run as written, and it names the problems."""

import base64
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from offpolicy_monitor.figures import FIGURES

from tests.figures.everything import arrays
from tests.fixtures.application import JSON, SAFETENSORS, Application, Client, frame_bytes, json_bytes

POSTS = ["/v1/runs/{run}/batches", "/v1/evaluate"]


@pytest.fixture
def client(shared_client: Client) -> Client:
    """One for all tests."""
    return shared_client


def bodies(document: Any, path: str) -> dict[str, Any]:
    content: dict[str, Any] = document["paths"][path]["post"]["requestBody"]["content"]
    return content


@pytest.mark.parametrize("path", POSTS)
def test_the_examples_of_both_media_types_run_as_written(client: Client, path: str) -> None:
    content = bodies(client.get("/openapi.json").json(), path)
    assert set(content) == {"application/json", "application/vnd.safetensors"}
    answers = []
    for media_type, body in content.items():
        value = body["examples"]["packed"]["value"]
        raw = json.dumps(value).encode() if media_type == "application/json" else base64.b64decode(value)
        url = path.replace("{run}", media_type.replace("/", "."))
        response = client.post(url, content=raw, headers={"Content-Type": media_type})
        assert response.status_code == 200, response.text
        answers.append(response.json())
    assert answers[0]["gaps"] == answers[1]["gaps"]
    assert answers[0]["methods"] == answers[1]["methods"]


@pytest.mark.parametrize("detail", ["none", "sequence", "token"])
def test_an_evaluation_has_the_types_that_the_document_declares(client: Client, detail: str) -> None:
    document = client.get("/openapi.json").json()
    declared = document["components"]["schemas"]["EvaluateAnswer"]["properties"]
    answer = client.post(f"/v1/evaluate?detail={detail}", content=json_bytes(), headers=JSON).json()
    kinds: dict[str, Any] = {"integer": int, "number": (int, float), "array": list, "object": dict}
    for name in declared.keys() & answer.keys():
        kind = declared[name]["type"]
        assert isinstance(answer[name], kinds[kind if isinstance(kind, str) else kind[0]]), name
    assert ("per_sequence" in answer) == (detail != "none")


def test_the_document_is_made_once_for_all_who_ask(application: Application) -> None:
    with application() as client, ThreadPoolExecutor(8) as threads:
        app: Any = client.app
        made = list(threads.map(lambda _: app.openapi_text(), range(8)))
        assert client.get("/openapi.json").content == made[0]
    assert all(text is made[0] for text in made)
    assert json.loads(made[0]) == app.openapi()


def test_the_document_is_no_page_and_takes_no_query(client: Client) -> None:
    refused = client.get("/openapi.json?run=a")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (422, "unknown-parameter")


def test_every_operation_documents_its_problems(client: Client) -> None:
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            refused = [code for code in operation["responses"] if code >= "400"]
            assert refused or not path.startswith("/v1"), path
            for code in refused:
                content = operation["responses"][code]["content"]
                assert set(content) == {"application/problem+json"}, (path, code)


def test_every_operation_says_which_scopes_it_needs(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert {name: one["scheme"] for name, one in document["components"]["securitySchemes"].items()} == {
        "token": "bearer",
        "browser": "basic",
    }
    of = {
        (method, path): {
            scope for way in operation["security"] for scope in way["token" if "token" in way else "browser"]
        }
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert of["post", "/v1/runs/{run}/batches"] == {"ingest"} and of["delete", "/v1/runs/{run}"] == {"admin"}
    assert of["get", "/v1/runs"] == {"read"} and of["get", "/healthz"] == set()
    for (method, path), scopes in of.items():
        responses = document["paths"][path][method]["responses"]
        assert ({"401", "403"} <= set(responses)) == bool(scopes), path


def test_every_reference_of_the_document_leads_somewhere(client: Client) -> None:
    document = client.get("/openapi.json").json()
    text = json.dumps(document)
    for reference in set(part.split('"')[0] for part in text.split('"$ref": "#/')[1:]):
        node = document
        for key in reference.split("/"):
            node = node[key]
        assert node


def below(schema: Any, keys: Iterable[str]) -> Any:
    """What a schema says of what is at some keys, those of a pattern or of an answer; None where it says nothing."""
    for key in keys:
        schema = schema.get("properties", {}).get(key) or schema.get("additionalProperties") or schema.get("items")
        if not isinstance(schema, dict):
            return None
    return schema


def numbers(answer: Any, *keys: str) -> Iterator[tuple[str, ...]]:
    """The keys of every number of an answer; {index} for the index of a list."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from numbers(value, *keys, key)
    elif isinstance(answer, list):
        for value in answer:
            yield from numbers(value, *keys, "{index}")
    elif isinstance(answer, int | float):
        yield keys


def test_every_figure_is_described_with_its_meaning_where_it_is_answered(client: Client) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    of_a_step = [figure for figure in FIGURES if not figure.path.startswith("correction.")]
    for figure in of_a_step:
        node = below(schemas["Step"], figure.path.split("."))
        assert node and node["description"].startswith(figure.meaning), figure.path
    assert len(of_a_step) > 220


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/runs/described/batches?detail=full", "BatchAnswer"),
        ("/v1/evaluate", "EvaluateAnswer"),
        ("/v1/evaluate?detail=token", "EvaluateAnswer"),
    ],
)
def test_every_number_of_an_answer_about_a_batch_is_described(client: Client, path: str, shape: str) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"][shape]
    content = frame_bytes({"step": 0, "policy_version": 9}, arrays(0))
    answer = client.post(path, content=content, headers=SAFETENSORS).json()
    found = set(numbers(answer))
    assert len(found) > 350
    assert [keys for keys in sorted(found) if not below(schema, keys)] == []
    assert answer.keys() >= set(schema["required"])

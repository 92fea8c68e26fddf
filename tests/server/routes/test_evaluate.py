"""POST /v1/evaluate: figures and method rows without anything stored."""

from pathlib import Path

import pytest

from tests.fixtures.application import JSON, SAFETENSORS, Client, good_frame, json_bytes, rows

ROWS = [{"name": "tight", "method": "opsm", "delta": 0.001}, {"name": "tis", "method": "truncate", "upper": 1.05}]


def test_rows_are_answered_in_the_order_asked(client: Client, tmp_path: Path) -> None:
    body = json_bytes(step=None, methods=ROWS)
    answer = client.post("/v1/evaluate", content=body, headers=JSON).json()

    assert [row["name"] for row in answer["methods"]] == ["tight", "tis"]
    assert answer["methods"][0]["masked_tokens"] == 0
    assert answer["gaps"]["total"]["tokens"] == 5
    assert "sequences" in answer and not isinstance(answer["sequences"], list)
    assert rows(tmp_path)["runs"] == 0


def test_without_rows_the_catalogue_runs(client: Client) -> None:
    answer = client.post("/v1/evaluate", content=good_frame(), headers=SAFETENSORS).json()
    assert {"opsm", "grpo", "mis_token"} <= {row["name"] for row in answer["methods"]}


def test_an_empty_list_of_rows_runs_none(client: Client) -> None:
    answer = client.post("/v1/evaluate", content=json_bytes(methods=[]), headers=JSON).json()
    assert answer["methods"] == []


def test_a_row_whose_advantages_were_not_sent_is_absent(client: Client) -> None:
    answer = client.post("/v1/evaluate", content=json_bytes(methods=ROWS, advantages=None), headers=JSON).json()
    assert [row["name"] for row in answer["methods"]] == ["tis"]


@pytest.mark.parametrize("detail", ["sequence", "token"])
def test_detail_goes_down_to_sequences_and_tokens(client: Client, detail: str) -> None:
    url = f"/v1/evaluate?detail={detail}"
    answer = client.post(url, content=json_bytes(methods=ROWS, lengths=[3, 2]), headers=JSON).json()

    sequences = answer["per_sequence"]
    assert answer["sequences"] == 2
    assert [sequence["tokens"] for sequence in sequences] == [3, 2]
    assert sequences[1]["gaps"]["total"]["log_product_ratio"] == pytest.approx(0.5)
    assert answer["methods"][0]["keep_sequences"] == [1, 1]
    assert ("keep_tokens" in answer["methods"][0]) == (detail == "token")
    if detail == "token":
        assert answer["methods"][1]["weights"][0] == pytest.approx([1.0, 0.7788, 1.0], abs=1e-4)


def test_a_thousand_rows_are_answered(client: Client) -> None:
    many = [{"name": f"d{i}", "method": "ipo", "threshold": i / 1000} for i in range(1000)]
    answer = client.post("/v1/evaluate", content=json_bytes(methods=many), headers=JSON).json()
    assert [row["name"] for row in answer["methods"]] == [row["name"] for row in many]


def test_a_name_that_is_half_a_surrogate_pair_is_400(client: Client) -> None:
    methods = [{"method": "mask", "upper": 2, "name": "\ud800"}]
    response = client.post("/v1/evaluate", content=good_frame(methods=methods), headers=SAFETENSORS)
    assert response.status_code == 400
    assert response.json()["type"].endswith(":malformed-body")

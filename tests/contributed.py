"""Asks a service about what the recipes of CONTRIBUTING.md add, and writes its answers beside its database, as JSON.

Run by tests/test_contributing.py on a copy of the package: python -m tests.contributed FOLDER.
"""

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import offpolicy_monitor
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import parse_row
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.summary import from_bytes, to_bytes
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.checks import InvalidSummaryError, Shard, check_names, checked
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import merged

from tests.fixtures.application import JSON, SAFETENSORS, Client, database, frame_bytes, running

ROW = {"name": "off_band", "method": "off_band", "gap": "total", "threshold": 0.05}


def asked(client: Client) -> dict[str, Any]:
    """Everything that is asked."""
    source = np.random.default_rng(0)
    mu = -source.exponential(1.0, 600).astype(np.float32) - 1
    pi = mu + source.normal(0, 0.06, 600).astype(np.float32)
    sent = {"lengths": np.full(6, 100), "sampling_logprobs": mu, "old_logprobs": mu, "logprobs": pi}

    def post(path: str, **envelope: Any) -> Any:
        content = frame_bytes({"step": 1, **envelope}, sent)
        return client.post(path, content=content, headers=SAFETENSORS)

    post("/v1/runs/a/batches")
    rows = json.dumps({"methods": [ROW]})
    assert client.request("PATCH", "/v1/runs/a", content=rows, headers=JSON).status_code == 200
    batch = post("/v1/runs/a/batches", step=2, minibatches=1).json()
    refused = post("/v1/evaluate", methods=[{**ROW, "threshold": -1}])
    plotted = ("methods.off_band.masked_token_fraction", "gaps.total.changed_fraction")
    of_run = "/v1/runs/a"
    recommended = client.get(f"{of_run}/recommendations?target=0.1").json()["methods"]
    return {
        "package": offpolicy_monitor.__file__,
        "share_beyond": float((np.abs(pi - mu) > 0.05).mean()),
        "evaluated": post("/v1/evaluate", methods=[ROW]).json()["methods"][0],
        "refused": [refused.status_code, [error["field"] for error in refused.json()["errors"]]],
        "ingested": batch["methods"]["off_band"],
        "gap": batch["gaps"]["total"],
        "whatif": client.get(f"{of_run}/whatif?method=off_band&gap=total&threshold=0.05&from=2").json(),
        "recommended": [row for row in recommended if (row["method"], row["gap"]) == ("off_band", "total")],
        "series": {path: client.get(f"{of_run}/series?field={path}&from=2").json()["value"] for path in plotted},
        "rules": client.get(f"{of_run}/rules").json()["rules"],
        "described": client.get("/openapi.json").json()["components"]["schemas"]["Step"]["properties"],
        **with_rewards(client, sent),
    }


def with_rewards(client: Client, sent: dict[str, Any]) -> dict[str, Any]:
    """Two steps of another run: one without rewards, one with two shards of them."""
    rewards = [None, [-1, 1, 0, -2, 1, 1], [-1, -1, -1, 1, 1, 1]]
    for number, of_shard in enumerate(rewards):
        shard = {"step": 2, "shard": number - 1, "shards": 2} if of_shard else {"step": 1}
        more = {"rewards": np.array(of_shard, np.float32)} if of_shard else {}
        content = frame_bytes(shard, {**sent, **more})
        assert client.post("/v1/runs/b/batches", content=content, headers=SAFETENSORS).status_code == 200
    return {
        "lacking": client.get("/v1/runs/b/steps/1").json(),
        "merged": client.get("/v1/runs/b/steps/2").json(),
        "plotted": client.get("/v1/runs/b/series?field=rewards.negative_fraction").json(),
    }


def sums() -> dict[str, float | None]:
    """The declared sum of a batch with two sequences of one token: stored, merged, and merged with an older summary."""
    lengths, logprobs = np.array([1, 5, 1]), np.linspace(-2, -1, 7, dtype=np.float32)
    columns = {"old_logprobs": logprobs, "logprobs": logprobs}
    new = from_bytes(to_bytes(Measurer("cpu").measure(RaggedBatch.from_positions(lengths, columns, {}), ())))
    older = from_bytes(Path(__file__).with_name("summary").joinpath("stored_v3.bin").read_bytes())
    merges = {"new": new, "twice": new.merge(new), "with an older one": older.merge(new)}
    return {name: summary.batch.get("single_sequences") for name, summary in merges.items()}


def outside() -> dict[str, str]:
    """What is said of tables of a kind from outside, beside 50 tokens of the mismatch and none of other gaps."""
    columns = {name: np.full(50, -1, np.float32) for name in ("sampling_logprobs", "old_logprobs", "logprobs")}
    columns["logprobs"][:] = np.nan
    batch = RaggedBatch.from_positions(np.array([50]), columns, {})
    summary = Measurer("cpu").measure(batch, (parse_row({**ROW, "gap": "mismatch"}),))
    found = {}
    for asked in (
        "mismatch 50", "mismatch 51", "mismatch 0", "total 0", "off_band/mismatch 50", "off_band/total 0",
        "shoes/mismatch 50",
    ):  # fmt: skip
        path, tokens = f"outside/{asked}".split()
        beside = Arrays.of(LAYOUT, {path: {"tokens": int(tokens)}})
        whole = replace(summary, arrays=merged((summary.arrays, beside)))
        try:
            check_names(whole.arrays.scheme.keys, whole.specs, Shard(0))
            checked(whole, Shard(0))
            found[f"outside/{asked}"] = "passes"
        except InvalidSummaryError as error:
            found[f"outside/{asked}"] = str(error)
    return found


if __name__ == "__main__":
    logging.disable()
    url = database(Path(sys.argv[1]))
    upgrade(url)
    with running(create_app(Settings(database_url=url, device="cpu", torch_compile=False))) as client:
        found = {**asked(client), "sums": sums(), "outside": outside()}
    (Path(sys.argv[1]) / "answers.json").write_text(json.dumps(found))

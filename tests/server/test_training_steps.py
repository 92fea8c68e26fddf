"""Training steps of several gradient steps, from outside: each is judged once, and alerts do not flap within it."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.fixtures.application import JSON, SAFETENSORS, Application, Client, frame_bytes
from tests.notify.receiver import Receiver, eventually, receiving

SIGNS = np.tile([1, -1], 200)


@dataclass
class Trainer:
    """Posts gradient steps of 400 tokens in 20 sequences: every token's mismatch is `gap` nats one way or the other,
    and its staleness `drift`; `minibatches` are declared unless None. `answers` are the batches' own."""

    client: Client
    minibatches: int | None = 4
    shards: int = 1
    answers: list[dict[str, Any]] = field(default_factory=list)

    def post(self, step: int, minibatch: int = 0, gap: float = 0.01, drift: float = 0.0, **more: Any) -> dict[str, Any]:
        mu = np.full(400, -1.0, np.float32)
        broken = more.pop("broken", 0)
        mu[:broken] = np.nan
        old = (np.full(400, -1.0) + gap * SIGNS).astype(np.float32)
        sent = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": (old + drift).astype(np.float32)}
        arrays = {name: more.pop(name) for name in ("policy_versions",) if name in more}
        envelope = {"step": step, "minibatch": minibatch, "shards": self.shards, "policy_version": step, **more}
        if self.minibatches is not None:
            envelope["minibatches"] = self.minibatches
        content = frame_bytes(envelope, {**sent, **arrays, "lengths": np.full(20, 20)})
        response = self.client.post("/v1/runs/a/batches", content=content, headers=SAFETENSORS)
        assert response.status_code == 200, response.text
        self.answers.append(response.json())
        return self.answers[-1]

    def step(self, step: int, minibatches: int = 4, gap: float = 0.01, drift: float = 0.0, **more: Any) -> None:
        """All gradient steps of one; staleness grows from nothing in the first to `drift` in the last."""
        for minibatch in range(minibatches):
            self.post(step, minibatch, gap, drift * minibatch / max(1, minibatches - 1), **more)

    def alerts(self, state: str = "active") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(f"/v1/alerts?run=a&limit=1000&state={state}").json()["alerts"]
        return found

    def active(self) -> set[tuple[str, str]]:
        return {(alert["alert"], alert["severity"]) for alert in self.alerts()}

    def judged(self) -> int | None:
        """The step that the run was judged at last."""
        found: int | None = self.client.get("/v1/runs/a/rules").json()["step"]
        return found


def test_fourteen_drifting_steps_of_four_gradient_steps_raise_each_alert_once(application: Application) -> None:
    with receiving() as receiver, application(webhook_url=receiver.url) as client:
        trainer = Trainer(client)
        for step in range(14):
            trainer.step(step, gap=0.15, drift=0.4)
        rows = [*trainer.alerts("pending"), *trainer.alerts("active"), *trainer.alerts("resolved")]
        counted = Counter((row["alert"], row["severity"]) for row in rows)
        raised = {("MismatchKL", "warning"), ("TotalOffPolicy", "critical"), ("MultiplicativeError", "critical")}
        assert raised <= set(counted)
        assert set(counted.values()) == {1}
        assert {row["state"] for row in rows} == {"active"}
        assert trainer.judged() == 13
        assert {row["last_step"] for row in rows if row["since_step"] is not None} == {13}
        # One alert of each half speaks for the others.
        eventually(lambda: told(receiver))
        assert set(told(receiver).values()) == {1}
        assert told(receiver).keys() < counted.keys()
        assert {body["state"] for body in receiver.taken} == {"active"}


def told(receiver: Receiver) -> Counter[tuple[str, str]]:
    """How often the webhook was told of each alert."""
    return Counter((body["alert"], body["severity"]) for body in receiver.taken)


def test_the_answered_verdict_changes_between_steps_and_not_within_them(client: Client) -> None:
    trainer = Trainer(client)
    for step in range(8):
        trainer.step(step, drift=0.4)
    for step in range(8, 13):
        trainer.step(step)
    # The last gradient step of a training step has it judged; TotalOffPolicy takes five of the last seven of them.
    told = [answer["verdict"] for answer in trainer.answers]
    assert told == ["accept"] * 19 + ["skip"] * 24 + ["accept"] * 9
    assert len(client.get("/v1/alerts?run=a&state=resolved&limit=1000").json()["alerts"]) == len(
        {(row["alert"], row["severity"]) for row in trainer.alerts("resolved")}
    )


def test_the_first_half_of_a_rollout_is_answered_with_the_verdict_that_stands(client: Client) -> None:
    trainer = Trainer(client, 1)
    for step in range(6):
        trainer.step(step, minibatches=1, gap=0.17)
    told = trainer.answers[-1]
    half = {"lengths": [2], "sampling_logprobs": [-1.0, -1.0], "old_logprobs": [-1.0, -1.0]}
    body = json.dumps({"step": 6, "rollout": "r", **half})
    answer = client.post("/v1/runs/a/batches", content=body, headers=JSON).json()
    assert (answer["stored"], answer["verdict"], answer["alerts"]) == (False, "skip", told["alerts"])


def test_a_change_of_settings_while_a_gradient_step_is_open_leaves_alerts_as_they_are(client: Client) -> None:
    trainer = Trainer(client)
    for step in range(6):
        trainer.step(step, drift=0.4)
    before = trainer.alerts("active"), scraped(client)
    assert ("TotalOffPolicy", "critical") in trainer.active()
    for minibatch in range(3):
        trainer.post(6, minibatch)
        changed = client.request("PATCH", "/v1/runs/a", content=b'{"labels": {"a": "b"}}', headers=JSON)
        assert (changed.status_code, changed.json()["verdict"]) == (200, "skip")
        assert (trainer.alerts("active"), scraped(client)) == before
    assert client.get("/v1/runs/a/rules").json()["step"] == 5
    trainer.post(6, 3)
    assert trainer.judged() == 6
    for step in (7, 8):
        trainer.step(step)
    assert trainer.active() == set()


def scraped(client: Client) -> list[str]:
    """What Prometheus sees of the rules."""
    text = client.get("/metrics").text
    return [line for line in text.splitlines() if line.startswith("offpolicy_alert_")]


def test_gauges_show_the_latest_gradient_step_while_rules_wait_for_the_last(client: Client) -> None:
    trainer = Trainer(client)
    trainer.step(0)
    trainer.post(1, 0, gap=0.3)
    assert 'offpolicy_step{run="a"} 1.0\n' in client.get("/metrics").text
    assert trainer.judged() == 0


def test_a_run_that_counts_optimizer_steps_as_versions_is_not_called_stale(client: Client) -> None:
    """Four epochs of four gradient steps, as an older adapter for TRL posted them."""
    trainer = Trainer(client, 16)
    for step in range(4):
        for minibatch in range(16):
            versions = np.full(20, 16 * step)
            trainer.post(step, minibatch, policy_version=16 * step + minibatch, policy_versions=versions)
    states = client.get("/v1/runs/a/rules").json()["rules"]
    found = {(one["severity"], one["state"], one["value"]) for one in states if one["alert"] == "StaleData"}
    assert found == {("warning", "quiet", 15 / 16), ("critical", "quiet", 15 / 16)}
    assert trainer.alerts("resolved") == trainer.alerts() == []


@pytest.mark.parametrize("minibatches", [4, None])
def test_tokens_that_are_broken_in_the_first_gradient_step_alone_are_seen(
    client: Client, minibatches: int | None
) -> None:
    trainer = Trainer(client, minibatches)
    trainer.step(0)
    trainer.post(1, 0, broken=40)
    for minibatch in range(1, 4):
        trainer.post(1, minibatch)
    trainer.post(2, 0)
    # 40 of the 1,600 tokens of the training step.
    [found] = [
        row for row in trainer.alerts("active") if (row["alert"], row["severity"]) == ("DataQuality", "critical")
    ]
    assert (found["since_step"], found["value"]) == (1, pytest.approx(0.025))


def test_an_engine_that_samples_for_the_first_gradient_step_alone_is_compared_with_the_others(client: Client) -> None:
    trainer = Trainer(client)
    for step in range(6):
        trainer.post(step, 0, gap=0.8, labels={"engine": "stale"})
        for minibatch in range(1, 4):
            trainer.post(step, minibatch, labels={"engine": "good"})
    assert ("ShardOutlier", "critical") in trainer.active()


def test_two_engines_that_take_turns_are_told_once(client: Client) -> None:
    trainer = Trainer(client)
    for step in range(12):
        for minibatch in range(4):
            engine = (step + minibatch) % 2
            trainer.post(step, minibatch, gap=0.8 if engine else 0.01, labels={"engine": f"e{engine}"})
    rows = [*trainer.alerts("active"), *trainer.alerts("resolved"), *trainer.alerts("pending")]
    counted = Counter((row["alert"], row["severity"]) for row in rows)
    assert ("ShardOutlier", "critical") in counted
    assert set(counted.values()) == {1}


def test_the_number_of_gradient_steps_is_learned_where_nobody_declares_it(client: Client) -> None:
    trainer = Trainer(client, None)
    judged = []
    for step in range(3):
        for minibatch in range(4):
            trainer.post(step, minibatch, drift=0.1 * minibatch)
            judged.append(trainer.judged())
    # The first step is over when the second begins; from then on four gradient steps are waited for.
    assert judged == [None] * 4 + [0] * 3 + [1] * 4 + [2]


def test_a_run_that_comes_to_have_fewer_gradient_steps_is_judged_all_the_same(client: Client) -> None:
    trainer = Trainer(client, None)
    for step in range(4):
        trainer.step(step)
    judged = []
    for step in range(4, 12):
        trainer.step(step, minibatches=2)
        judged.append(trainer.judged())
    # Until three steps have had two gradient steps, one is over when two later ones have begun.
    assert judged[:3] == [3, 3, 4]
    assert judged[-3:] == [9, 10, 11]


def test_a_step_waits_for_ranks_that_are_behind(client: Client) -> None:
    trainer = Trainer(client, None, shards=4)
    for minibatch in range(2):
        for shard in range(4):
            trainer.post(0, minibatch, shard=shard)
    # Rank 0 is a whole step ahead, rank 3 has not posted the first gradient step yet.
    for minibatch in range(2):
        for shard in range(3):
            trainer.post(1, minibatch, shard=shard)
    trainer.post(2, 0, shard=0)
    assert trainer.judged() == 0
    trainer.post(1, 0, shard=3, broken=400)
    assert trainer.judged() == 0
    trainer.post(1, 1, shard=3)
    assert trainer.judged() == 1
    # 400 of 3,200 tokens.
    assert next(row["value"] for row in trainer.alerts() if row["alert"] == "DataQuality") == pytest.approx(0.125)


def test_steps_whose_gradient_steps_come_in_turns_are_each_judged_once(client: Client) -> None:
    trainer = Trainer(client, 2)
    for first in range(0, 12, 2):
        for minibatch in range(2):
            for step in (first, first + 1):
                trainer.post(step, minibatch, drift=0.4 * minibatch)
    rows = [*trainer.alerts("active"), *trainer.alerts("resolved"), *trainer.alerts("pending")]
    counted = Counter((row["alert"], row["severity"]) for row in rows)
    assert counted[("TotalOffPolicy", "critical")] == 1
    assert set(counted.values()) == {1}


def test_a_gradient_step_that_never_comes_is_waited_for_until_its_time_is_up(application: Application) -> None:
    with application(step_timeout=2.0) as client:
        trainer = Trainer(client)
        trainer.step(0)
        for minibatch in (0, 1, 3):
            trainer.post(1, minibatch)
        assert trainer.judged() == 0
        wait_until(lambda: trainer.judged() == 1)


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_late_shard_has_its_step_judged_again_and_begins_no_alert_anew(application: Application) -> None:
    with application(step_timeout=2.0) as client:
        trainer = Trainer(client, 2)
        for step in range(6):
            trainer.step(step, minibatches=2, drift=0.4)
        trainer.shards = 2
        trainer.step(6, minibatches=2, drift=0.4, shard=0)
        wait_until(lambda: trainer.judged() == 6)
        trainer.shards = 1
        trainer.step(7, minibatches=2, drift=0.4)
        before = {row["id"] for row in trainer.alerts("active")}
        trainer.shards = 2
        trainer.step(6, minibatches=2, drift=0.4, shard=1)
        assert {row["id"] for row in trainer.alerts("active")} == before
        assert [row for row in trainer.alerts("resolved") if row["alert"] == "TotalOffPolicy"] == []
        assert trainer.judged() == 7


def test_a_restart_from_a_checkpoint_is_judged_by_its_own_steps(client: Client) -> None:
    trainer = Trainer(client, 2)
    for step in range(8):
        trainer.step(step, minibatches=2, drift=0.4)
    before = trainer.active()
    trainer.post(2, 0, attempt=1)
    assert (trainer.active(), trainer.judged()) == (before, 7)
    trainer.post(2, 1, attempt=1)
    assert (trainer.judged(), trainer.active()) == (2, set())

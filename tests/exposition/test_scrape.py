"""GET /metrics of the real application: text, OpenMetrics, restarts, and what promtool says of it."""

import subprocess

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.fixtures.application import JSON, Application, Client, json_bytes
from tests.fixtures.tools import require_tool

OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def load(client: Client) -> None:
    """Two runs: one with everything that can be sent, one with two log-prob arrays."""
    extra = {"entropy": [0.5, 1.0, 0.25, 1.5, 0.75], "policy_versions": [3, 4], "policy_version": 5}
    for step in (1, 2):
        client.post("/v1/runs/full/batches", content=json_bytes(step=step, **extra), headers=JSON)
    body = json_bytes(sampling_logprobs=None, advantages=None, labels={"gpu": "h100"})
    client.post("/v1/runs/half/batches", content=body, headers=JSON)
    client.post("/v1/runs/half/batches", content=body, headers=JSON)
    client.post("/v1/runs/half/batches", content=b"{", headers=JSON)


def samples(text: str, prefix: str = "offpolicy_") -> dict[str, float]:
    lines = [line for line in text.splitlines() if line.startswith(prefix)]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def run_gauges(text: str) -> dict[str, float]:
    """The samples that a restart must not change: gauges and quantiles with a run."""
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    return {
        name: value
        for name, value in samples(text).items()
        if 'run="' in name and types.get(name.partition("{")[0]) in ("gauge", "untyped")
    }


def test_promtool_has_nothing_to_say_about_a_loaded_service(client: Client) -> None:
    load(client)
    tool = require_tool("promtool")
    text = client.get("/metrics").content
    checked = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_content_type_follows_the_accept_header(client: Client) -> None:
    load(client)
    plain, open_metrics = client.get("/metrics"), client.get("/metrics", headers=OPENMETRICS)
    assert plain.headers["content-type"].startswith("text/plain")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    parsed = text_string_to_metric_families(open_metrics.text)
    families = {family.name for family in parsed}
    assert {"offpolicy_kl_nats", "offpolicy_tokens", "offpolicy_token_log_ratio_nats"} <= families


def test_gauges_are_those_of_the_last_step(client: Client) -> None:
    load(client)
    found = samples(client.get("/metrics").text)
    step = client.get("/v1/runs/full/steps/2").json()
    assert found['offpolicy_step{run="full"}'] == 2
    assert found['offpolicy_policy_version{run="full"}'] == 5
    assert found['offpolicy_step_complete_ratio{run="full"}'] == 1
    k3 = step["gaps"]["staleness"]["k3"]
    assert found['offpolicy_kl_nats{estimator="k3",gap="staleness",run="full"}'] == k3
    assert found['offpolicy_policy_lag_versions{run="full",stat="max"}'] == 2
    assert found['offpolicy_entropy_nats_mean{run="full"}'] == 0.8
    assert found['offpolicy_sequence_length_tokens_mean{run="full"}'] == 2.5
    quantile = step["gaps"]["total"]["quantiles"]["0.5"]
    assert found['offpolicy_log_ratio_quantile_nats{gap="total",quantile="0.5",run="full"}'] == quantile
    masked = step["methods"]["grpo"]["masked_token_fraction"]
    assert found['offpolicy_masked_ratio{method="grpo",run="full",unit="token"}'] == masked


def test_a_gap_that_was_not_sent_has_no_sample(client: Client) -> None:
    load(client)
    of_half = [name for name in samples(client.get("/metrics").text) if 'run="half"' in name]
    assert any('gap="staleness"' in name for name in of_half)
    assert not any('gap="mismatch"' in name or 'gap="total"' in name for name in of_half)


def test_counters_count_stored_shards_once_and_exist_at_0(client: Client) -> None:
    load(client)
    found = samples(client.get("/metrics").text)
    assert found['offpolicy_tokens_total{run="full"}'] == 10
    assert found['offpolicy_sequences_total{run="full"}'] == 4
    assert found['offpolicy_batches_total{run="half"}'] == 1
    assert found['offpolicy_duplicate_batches_total{run="half"}'] == 1
    assert found['offpolicy_duplicate_batches_total{run="full"}'] == 0
    assert found['offpolicy_excluded_tokens_total{reason="nonfinite",run="full"}'] == 0
    assert found['offpolicy_suspect_tokens_total{reason="exact_zero",run="full"}'] == 0
    assert found['offpolicy_rejected_requests_total{reason="malformed-body"}'] == 1
    assert found['offpolicy_ingest_bytes_total{encoding="zstd"}'] == 0
    assert found["offpolicy_inflight_bytes"] == 0


def test_histograms_hold_each_token_once(application: Application) -> None:
    with application(histogram_buckets="full") as client:
        client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON)
        found = samples(client.get("/metrics").text)
    signed = 'offpolicy_token_log_ratio_nats_bucket{gap="staleness",le="%s",run="r"}'
    absolute = 'offpolicy_token_log_ratio_abs_nats_bucket{gap="staleness",le="%s",run="r"}'
    assert [found[signed % le] for le in ("-0.1", "-0.05", "0.0", "0.2", "0.5", "+Inf")] == [0, 1, 3, 3, 5, 5]
    assert [found[absolute % le] for le in ("1e-06", "0.05", "0.1", "0.5", "+Inf")] == [2, 2, 3, 5, 5]
    assert not any(name.startswith("offpolicy_token_log_ratio_nats_sum") for name in found)


def test_a_restart_shows_the_same_gauges_and_starts_counters_at_0(application: Application) -> None:
    with application() as client:
        load(client)
        before = client.get("/metrics").text
    with application() as client:
        after = client.get("/metrics").text
    assert run_gauges(after) == run_gauges(before)
    assert len(run_gauges(after)) > 100
    assert samples(after)['offpolicy_tokens_total{run="full"}'] == 0
    assert samples(after)['offpolicy_token_log_ratio_nats_bucket{gap="total",le="+Inf",run="full"}'] == 0


def test_an_incomplete_step_moves_no_gauge(client: Client) -> None:
    client.post("/v1/runs/r/batches", content=json_bytes(step=1), headers=JSON)
    client.post("/v1/runs/r/batches", content=json_bytes(step=2, shards=2), headers=JSON)
    assert samples(client.get("/metrics").text)['offpolicy_step{run="r"}'] == 1


def test_no_more_runs_are_exposed_than_allowed(application: Application) -> None:
    with application(max_exported_runs=2) as client:
        for run in ("a", "b", "c"):
            client.post(f"/v1/runs/{run}/batches", content=json_bytes(), headers=JSON)
        text = client.get("/metrics").text
    assert {name for name in ("a", "b", "c") if f'run="{name}"' in text} == {"b", "c"}


def test_a_silent_run_leaves(application: Application) -> None:
    with application(run_expiry=1e-6) as client:
        client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON)
        assert 'run="r"' not in client.get("/metrics").text


def test_labels_are_route_templates_and_never_paths(client: Client) -> None:
    load(client)
    client.get("/v1/runs/some-name")
    client.get("/wp-admin.php")
    text = client.get("/metrics").text
    assert 'offpolicy_request_seconds_count{route="/v1/runs/{run}",status="404"} 1.0' in text
    assert 'offpolicy_request_seconds_count{route="unmatched",status="404"} 1.0' in text
    assert "some-name" not in text and "wp-admin" not in text


def test_a_run_that_has_not_changed_is_shown_again_and_one_that_has_is_shown_anew(client: Client) -> None:
    load(client)
    first = [line for line in client.get("/metrics").text.splitlines() if 'run="' in line]
    assert [line for line in client.get("/metrics").text.splitlines() if 'run="' in line] == first
    client.post("/v1/runs/full/batches", content=json_bytes(step=3, logprobs=[-1.0] * 5), headers=JSON)
    second = [line for line in client.get("/metrics").text.splitlines() if 'run="' in line]
    assert {line for line in first if 'run="half"' in line} <= set(second)
    found = samples("\n".join(second))
    assert found['offpolicy_step{run="full"}'] == 3
    assert found['offpolicy_token_log_ratio_nats_bucket{gap="total",le="+Inf",run="full"}'] == 15
    assert found['offpolicy_batches_total{run="full"}'] == 3


def test_both_formats_show_the_same_samples_of_runs(client: Client) -> None:
    load(client)
    plain, open_metrics = client.get("/metrics").text, client.get("/metrics", headers=OPENMETRICS).text
    of_runs = [[line for line in text.splitlines() if 'run="' in line] for text in (plain, open_metrics)]
    assert of_runs[0] == of_runs[1] and len(of_runs[0]) > 300
    assert open_metrics.endswith("\n# EOF\n") and open_metrics.count("# EOF") == 1
    assert "# EOF" not in plain

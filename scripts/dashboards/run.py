"""One run: is it healthy, does its engine agree with its trainer, how stale is its data, does its policy stay well.

Sections repeat for every run chosen. Thresholds are those in force for the run, with its profile and overrides.
"""

from scripts.dashboards.model import RUN, Board, Line, Query, Question, Section, active, of_run
from scripts.dashboards.run_agreement import AGREEMENT
from scripts.dashboards.run_staleness import STALENESS

BREACHED = (
    f"max by (alert, severity) (clamp_max(offpolicy_alert_breach_steps{{{RUN}}}, 1) + {active()}) "
    f"and max by (alert, severity) (max_over_time(offpolicy_alert_breach_steps{{{RUN}}}[$__range])) > 0"
)
LASTING = f"max by (alert, severity) (offpolicy_alert_breach_steps{{{RUN}}}) > 0"

HEALTH = (
    Question(
        1, "How many alerts are active?", "Active alerts by severity; the timeline beside says which, and since when.",
        (Query(f"sum by (severity) {active()}", "{{severity}}"),), "stat", width=4, height=6,
        lines=(Line(1, "red"),),
    ),
    Question(
        2, "Which step is it at?", "The training step that all figures here are of, and the version it trains.",
        (Query(of_run("step", by="run"), "step"), Query(of_run("policy_version", by="run"), "policy version")),
        "stat", width=4, height=6, base="text",
    ),
    Question(
        3, "How long since it last posted?",
        "Beside the median step. Three times the median, and at least ten minutes, is a warning: look at the trainer.",
        (Query(f"time() - {of_run('last_batch_timestamp_seconds', by='run')}", "silent for"),
         Query(of_run("step_seconds_median", by="run"), "median step")),
        "stat", "s", width=4, height=6, base="text", alert="RunSilent",
    ),
    Question(
        4, "Which rules were breached, and when?",
        "Pending: breached for fewer steps than the rule asks for. Active: told. Rules without a breach in the time "
        "range are left out. Start at the one that came first.",
        (Query(BREACHED, "{{alert}} {{severity}}"),), "statetimeline", width=12, height=12,
        names={0: ("quiet", "green"), 1: ("pending", "yellow"), 2: ("active", "red")},
    ),
    Question(
        5, "How long has each rule been breached?",
        "Steps in breach, one after the other. Most rules ask for three to ten before they alert: the timeline beside "
        "says which have.",
        (Query(LASTING, "{{alert}} {{severity}}"),), width=12, height=6, minimum=0,
    ),
)  # fmt: skip

POLICY = (
    Question(
        71, "Does the policy keep its entropy?",
        "Mean entropy in nats. Halved in fifty steps, or below 0.2, it no longer explores.",
        (Query(of_run("entropy_nats_mean", by="run"), "entropy"),), alert="EntropyCollapse", minimum=0,
        lines=(Line(0.2, "red"),), base="text",
    ),
    Question(
        72, "Do answers grow, and how long may they be?",
        "Mean length, and the length at which product ratios keep an effective sample size of 0.3. Above its budget, "
        "sequence-level weights are noise: use token-level or geometric ones.",
        (Query(of_run("sequence_length_tokens_mean", by="run"), "mean length"),
         Query(of_run("length_budget_tokens", by="run"), "length budget")), log=True, alert="LengthSurge",
    ),
    Question(
        73, "How surprised is each policy by the data?",
        "Mean perplexity of sequences: sampling is the engine's, old the trainer's at the same weights, current "
        "today's.",
        (Query(of_run("perplexity", by="policy"), "{{policy}}"),), alert="PerplexityGap",
    ),
)  # fmt: skip

ARRIVAL = (
    Question(
        91, "Do all shards of a step arrive?",
        "Share of the step's shards that are stored. Below 1 for long: a rank died.",
        (Query(of_run("step_complete_ratio", by="run"), "stored"),), unit="percentunit",
        alert="IncompleteStep", minimum=0, maximum=1,
    ),
    Question(
        92, "How many tokens per second arrive?",
        "Tokens under the mask over the window. Choose one longer than a step.",
        (Query(f"sum(rate(offpolicy_tokens_total{{{RUN}}}[$window]))", "tokens per second"),), minimum=0,
    ),
    Question(
        93, "How many tokens look wrong?",
        "Excluded (not finite) and suspect (positive, or exactly 0) tokens over the window. More than a handful: the "
        "engine's log-probs, or the mask, are broken.",
        (Query(f"sum by (reason) (increase(offpolicy_excluded_tokens_total{{{RUN}}}[$window]))", "excluded {{reason}}"),
         Query(f"sum by (reason) (increase(offpolicy_suspect_tokens_total{{{RUN}}}[$window]))", "suspect {{reason}}")),
        alert="DataQuality", minimum=0,
    ),
    Question(
        94, "Are shards posted twice?",
        "Duplicates over the window. Each is stored once; many are a client that retries.",
        (Query(f"sum(increase(offpolicy_duplicate_batches_total{{{RUN}}}[$window]))", "duplicates"),), width=12,
        minimum=0,
    ),
    Question(
        95, "How long has a step waited for its shards?",
        "Age of the oldest open step of the latest 32; nothing is shown where all are complete. Above three median "
        "steps it is a warning: a rank died, or posts to another run.",
        (Query(f"time() - min({of_run('open_step_timestamp_seconds')})", "oldest open step"),), unit="s", width=12,
        alert="IncompleteStep", minimum=0,
    ),
)  # fmt: skip

ONE_RUN = Board(
    "offpolicy-run", "Off-policy: one run",
    "One run in full: which half drifts, since when, what it costs, and which alert says so.",
    (
        Section(100, "$run: is it healthy?", HEALTH, "run"),
        Section(101, "$run: do engine and trainer agree?", AGREEMENT, "run"),
        Section(102, "$run: how off-policy is its data?", STALENESS, "run"),
        Section(103, "$run: is the policy itself well?", POLICY, "run"),
        Section(104, "$run: does its data arrive whole?", ARRIVAL, "run"),
    ),
)  # fmt: skip

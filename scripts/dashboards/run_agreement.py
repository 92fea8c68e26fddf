"""One run: do engine and trainer agree about the same tokens at the same weights?"""

from scripts.dashboards.model import RUN, Query, Question, of_run, value_of

GAP = "{{gap}}"
MISMATCH = 'gap="mismatch"'
BUCKETS = f"increase(offpolicy_token_log_ratio_nats_bucket{{{RUN},{MISMATCH}}}[$window])"
# Where Prometheus takes native histograms, it has no buckets.
NATIVE = f"increase(offpolicy_token_log_ratio_nats{{{RUN},{MISMATCH}}}[$window])"
WHILE_BREACHED = (
    "Shown while the rule is breached or the run has its own terms for it; always with OFFPOLICY_ALERT_GAUGES=all."
)


def mismatch(name: str, legend: str) -> Query:
    """A figure of the mismatch alone."""
    return Query(of_run(name, MISMATCH, "gap"), legend)


AGREEMENT = (
    Question(
        21, "How far are the policies apart?",
        "k3 in nats per token. Mismatch: engine against trainer at the same weights. Staleness: the weights have "
        "moved. Total: both. Lines belong to the mismatch. A mismatch that rises is a bug or a precision that no "
        "longer suffices; staleness is yours to choose.",
        (Query(of_run("kl_nats", 'estimator="k3"', "gap"), GAP),), log=True, width=12, alert="MismatchKL", drawn=True,
    ),
    Question(
        22, "Has the mismatch grown since the run began?",
        "The mean of the last twenty steps over the median of steps 5 to 25. 1 is as it was; a steady climb came "
        "before reported collapses. " + WHILE_BREACHED,
        value_of("MismatchDrift"), width=12, alert="MismatchDrift", drawn=True, minimum=0,
    ),
    Question(
        23, "Do the three estimates of KL agree?",
        "Where engine and trainer sample from the same distribution, k1, k2 and k3 agree. k1 far above k3: the engine "
        "reports another distribution than it samples from (top-p, temperature).",
        (Query(of_run("kl_nats", MISMATCH, "estimator"), "{{estimator}}"),), alert="RatioNotCalibrated",
    ),
    Question(
        24, "Is the mean ratio 1?",
        "The mean importance ratio of the mismatch: 1 by definition for log-probs of the distribution sampled from.",
        (mismatch("importance_ratio_mean", "mean ratio"),), alert="RatioNotCalibrated",
    ),
    Question(
        25, "How far are token probabilities apart?",
        "Mean |pi_old - mu| over tokens: a mean of 0.01 is a lot. Numeric noise stays below 0.005.",
        (mismatch("probability_diff_mean", "mean difference"),), alert="ProbabilityDiff", drawn=True, minimum=0,
    ),
    Question(
        26, "Do the probabilities go together?",
        "Pearson correlation of the probabilities of engine and trainer. Healthy is above 0.99.",
        (mismatch("probability_correlation", "correlation"),), alert="Correlation", drawn=True, maximum=1,
    ),
    Question(
        27, "How many tokens are off by a factor of two?",
        "Share of tokens whose ratio is beyond 2 or 1/2, by gap; lines belong to the mismatch. Above 10 % training has "
        "been seen to fail.",
        (Query(of_run("ratio_tail_ratio", by="gap"), GAP),), unit="percentunit", alert="RatioTail", drawn=True,
        minimum=0,
    ),
    Question(
        28, "By what factor are probabilities off?",
        "Mean of exp |d| over tokens, |d| being the absolute log-ratio of the mismatch: 1 is equal.",
        (mismatch("multiplicative_error_mean", "factor"),), alert="MultiplicativeError", drawn=True,
    ),
    Question(
        29, "How far are whole sequences apart?",
        "Mean |log geometric ratio|, what the rule compares: what sequence-level corrections see. " + WHILE_BREACHED,
        value_of("PerplexityGap"), alert="PerplexityGap", drawn=True, minimum=0,
    ),
    Question(
        30, "How many tokens agree to the last bit?",
        "Share of tokens with equal log-probs. 1 without the bitwise profile means that one array was copied from the "
        "other, and that the mismatch is not measured.",
        (Query(of_run("exact_match_ratio", by="gap"), GAP),), unit="percentunit", alert="DataQuality", minimum=0,
    ),
    Question(
        31, "Where do the log-ratios lie?",
        "Quantiles over tokens of log pi_old - log mu. Symmetric about 0 is noise; a shift is a bug.",
        (Query(of_run("log_ratio_quantile_nats", MISMATCH, "quantile"), "{{quantile}}"),), alert="MismatchKL",
    ),
    Question(
        32, "How are the log-ratios distributed?",
        "Tokens by log-ratio of the mismatch between the default thresholds of methods, over the window. With "
        "OFFPOLICY_HISTOGRAM_BUCKETS=full, or native histograms, it is fine enough for a second hump: a population of "
        "its own, from a replica, a prompt template, a dtype.",
        (Query(f"sum by (le) ({BUCKETS}) or on () sum({NATIVE})", "{{le}}"),),
        "heatmap", alert="ShardOutlier",
    ),
    Question(
        34, "How far off is the worst token?",
        "The largest |log-ratio| of a token, by gap. The page of the worst sequences shows which one it was.",
        (Query(of_run("log_ratio_abs_max_nats", by="gap"), GAP),), log=True, alert="RatioTail",
    ),
    Question(
        33, "Do engine and trainer choose the same experts?",
        "Share of the top-k experts in common, of mixtures of experts that send them. Replay the engine's routing "
        "where it falls.",
        (Query(of_run("routing_agreement_ratio", by="gap"), GAP),), unit="percentunit",
        alert="RoutingAgreement", maximum=1,
    ),
    Question(
        35, "How much of the mismatch does one side make alone?",
        "Second moment of what the engine's decode and prefill differ by (engine_logprobs), and of what two passes of "
        "the trainer do (old_logprobs_repeat), over that of the mismatch. Engine near 1: batch shape, KV cache, "
        "kernels. Trainer at 1 and above: noise. Steps of which nothing was computed once more have none.",
        (Query(of_run("noise_floor_ratio", by="component"), "{{component}}"),), unit="percentunit",
        alert="MismatchKL", minimum=0,
    ),
)  # fmt: skip

"""One run: how far off-policy is its data, by what, and what does that cost?"""

from scripts.dashboards.model import RUN, Query, Question, of_run, off_by

GAP = "{{gap}}"
TOTAL = 'gap="total"'
ABSOLUTE = f"offpolicy_token_log_ratio_abs_nats{{{RUN},{TOTAL}}}"
BUCKETS = f"offpolicy_token_log_ratio_abs_nats_bucket{{{RUN},{TOTAL}"
BEYOND = (
    f"1 - sum by (le) (increase({BUCKETS},le=~'0.01|0.1|1.0'}}[$window]))"
    f" / on () group_left () sum(increase({BUCKETS},le='+Inf'}}[$window]))"
)
# Where Prometheus takes native histograms, it has no buckets.
NATIVE = "".join(
    f"\nor label_replace(1 - histogram_fraction(0, {bound}, sum(increase({ABSOLUTE}[$window]))), "
    f"'le', '{bound}', '', '')"
    for bound in ("0.01", "0.1", "1.0")
)

STALENESS = (
    Question(
        51, "What makes the data off-policy?",
        "Share of the total second moment by component. Mostly mismatch: look at engine and trainer. Mostly staleness: "
        "lower the lag or take fewer gradient steps. The interaction can be negative.",
        (Query(of_run("attribution_ratio", by="component"), "{{component}}"),), unit="percentunit", stacked=True,
        width=12, alert="StalenessDominates",
    ),
    Question(
        52, "How far off-policy is the data in total?",
        "|mean log-ratio| between the policy that sampled and the one that trains.",
        (Query(off_by("total", "gap"), GAP),), width=12,
        alert="TotalOffPolicy", drawn=True, minimum=0,
    ),
    Question(
        53, "How many versions old is the data?",
        "Policy versions between sampling and training. The largest is what hurts.",
        (Query(of_run("policy_lag_versions", by="stat"), "{{stat}}"),), alert="StaleData", drawn=True, minimum=0,
    ),
    Question(
        54, "How much of the batch is still effective, by token?",
        "Effective sample size of token ratios as a share; lines belong to the mismatch. Low: a few tokens carry the "
        "gradient.",
        (Query(of_run("effective_sample_size_ratio", 'level="token"', "gap"), GAP),), unit="percentunit",
        alert="LowEffectiveSampleSize", drawn=True, minimum=0, maximum=1,
    ),
    Question(
        55, "How much of the batch is still effective, by sequence?",
        "The same of products of ratios over whole sequences: it falls with length, whatever the tokens do.",
        (Query(of_run("effective_sample_size_ratio", 'level="sequence"', "gap"), GAP),), unit="percentunit",
        alert="LowEffectiveSampleSize", minimum=0, maximum=1,
    ),
    Question(
        56, "How large is the variance of the ratios?",
        "Chi-squared divergence of token ratios: 1 halves the effective sample size.",
        (Query(of_run("chi2", 'level="token"', "gap"), GAP),), alert="ChiSquare", drawn=True, log=True,
    ),
    Question(
        57, "How extreme do token ratios get?",
        "Smallest and largest ratio of a token, by gap. What a clip or a mask at your bounds would meet.",
        (Query(of_run("importance_ratio_max", by="gap"), GAP + " max"),
         Query(of_run("importance_ratio_min", by="gap"), GAP + " min")), log=True, alert="RatioTail",
    ),
    Question(
        58, "Where do sequences' geometric ratios lie?",
        "Quantiles over sequences of the geometric ratio in total: the scale of GSPO's clip bounds.",
        (Query(of_run("geometric_ratio_quantile", 'gap="total"', "quantile"), "{{quantile}}"),), alert="PerplexityGap",
    ),
    Question(
        59, "What share of tokens lies beyond a threshold?",
        "Share of tokens with |d| above 0.01, 0.1 and 1 over the window, in total: a first guess at a mask's bound.",
        (Query(BEYOND + NATIVE, "|d| > {{le}}"),),
        unit="percentunit", alert="SecondMoment", minimum=0,
    ),
)  # fmt: skip

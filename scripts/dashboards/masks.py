"""The masks: what every method that runs on a run's batches would drop, and what that would cost."""

from scripts.dashboards.model import Board, Line, Query, Question, Section, of_run

METHOD = "{{method}}"
CHOSEN = 'method=~"$method"'


def masked(id: int, unit: str, title: str, description: str) -> Question:
    """What share of tokens or sequences each method would drop, step by step."""
    query = Query(of_run("masked_ratio", f'{CHOSEN},unit="{unit}"', "method"), METHOD)
    return Question(
        id, title, description, (query,), unit="percentunit", width=12, height=10, alert="MaskRate", minimum=0
    )


NOW = (
    Question(
        1, "Which methods do nothing, and which take most of the data away?",
        "Tokens that each method would drop of the latest step. 0: inert at this drift. Above one half: saturated, and "
        "the gradient is that of a few tokens. Thresholds for a wanted share: GET /v1/runs/RUN/recommendations.",
        (Query(of_run("masked_ratio", f'{CHOSEN},unit="token"', "method"), METHOD),), "bargauge", "percentunit", 12, 14,
        "MaskRate", lines=(Line(0.01, "orange"), Line(0.5, "red")), minimum=0, maximum=1,
    ),
    Question(
        2, "What does each method cost?",
        "One row per method: shares of tokens, of sequences and of |advantage| that it would drop, and the effective "
        "sample size of its weights. A good mask drops little and leaves a high ESS.",
        (
            Query(of_run("masked_ratio", f'{CHOSEN},unit="token"', "method"), "tokens", "percentunit"),
            Query(of_run("masked_ratio", f'{CHOSEN},unit="sequence"', "method"), "sequences", "percentunit"),
            Query(of_run("masked_advantage_ratio", CHOSEN, "method"), "|advantage|", "percentunit"),
            Query(of_run("method_effective_sample_size_ratio", CHOSEN, "method"), "weight ESS", "percentunit"),
        ),
        "table", width=12, height=14, alert="MaskRate",
    ),
)  # fmt: skip

TIME = (
    masked(
        21, "token", "What share of tokens would each method drop?",
        "Published runs drop 1 to 2 in a thousand tokens; a method that drops more is answering a mismatch that should "
        "be repaired instead.",
    ),
    masked(
        22, "sequence", "What share of sequences would each method touch?",
        "Sequences of which the method would drop tokens. Sequence-level methods take whole ones: 20 % is a warning.",
    ),
    Question(
        23, "How much of the learning signal would each method drop?",
        "Share of the sum of |advantage|. Above the share of tokens: it drops what the gradient is made of.",
        (Query(of_run("masked_advantage_ratio", CHOSEN, "method"), METHOD),), unit="percentunit", width=12, height=10,
        alert="MaskRate", minimum=0,
    ),
    Question(
        24, "How effective would the weighted batch be?",
        "Effective sample size of each method's weights as a share. Truncation lifts it at the price of bias.",
        (Query(of_run("method_effective_sample_size_ratio", CHOSEN, "method"), METHOD),), unit="percentunit", width=12,
        height=10, alert="LowEffectiveSampleSize", minimum=0, maximum=1,
    ),
)  # fmt: skip

MASKS = Board(
    "offpolicy-masks", "Off-policy: what masks would do",
    "What every method of a run would drop or reweight, on the data that the run posted: nothing is applied.",
    (Section(100, "$run: what would each method do now?", NOW, "run"),
     Section(101, "$run: how does it change?", TIME, "run")),
    ("run", "method"),
)  # fmt: skip

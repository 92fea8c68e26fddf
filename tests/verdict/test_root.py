"""What an alert that speaks for others says: whole and short, and nothing twice."""

from offpolicy_monitor.verdict import Said, of_root
from offpolicy_monitor.verdict.cases import Word, Words

PAGE = "http://monitor.example:8900/runs/r1?step=96"


def said(state: Word = "drifting") -> Said:
    head = "Drifting since step 96: it looks like top-p renormalisation (score 0.97)."
    return Said("skip", Words(state, head, "Mismatch k3 is 0.0018.", "Sample with top_p = 1.", 96, "mismatch"))


def test_it_has_the_advice_the_cause_the_figure_what_to_change_and_where_to_look() -> None:
    assert of_root(said(), "Mismatch k3 is 0.02, critical above 0.01, since step 96.", ["ChiSquare"], PAGE) == (
        "Verdict: skip. Drifting since step 96: it looks like top-p renormalisation (score 0.97). "
        "Mismatch k3 is 0.02, critical above 0.01, since step 96. Do: Sample with top_p = 1. With it: ChiSquare. "
        + PAGE
    )


def test_of_many_others_the_first_four_are_named() -> None:
    assert "With it: A, B, C, D and 2 others." in of_root(said(), "It is large.", list("ABCDEF"), PAGE)
    assert "With it: A, B, C, D and 1 other." in of_root(said(), "It is large.", list("ABCDE"), PAGE)
    assert "With it" not in of_root(said(), "It is large.", [], PAGE)


def test_where_no_half_is_at_fault_the_rule_says_it_all() -> None:
    found = of_root(said("alarm"), "Answers grow longer fast.", [], PAGE)
    assert found == f"Verdict: skip. Answers grow longer fast. Do: Sample with top_p = 1. {PAGE}"


def test_an_alert_of_an_older_release_says_why_instead_of_its_own_words() -> None:
    assert "(score 0.97). Mismatch k3 is 0.0018. Do:" in of_root(said(), "", [], PAGE)

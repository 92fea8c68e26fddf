import pytest
from offpolicy_monitor.demo.answers import Answers


def test_the_latest_figures_and_their_means_are_kept() -> None:
    answers = Answers()
    answers.take({"gaps": {"mismatch": {"k3": 0.001}, "staleness": {"k3": 0.0}}})
    answers.take({"gaps": {"mismatch": {"k3": 0.003}}})
    assert answers.latest == {"mismatch": 0.003, "staleness": 0.0}
    assert answers.mean("mismatch") == pytest.approx(0.002)
    assert answers.mean("staleness") == 0.0
    assert answers.mean("total") is None


@pytest.mark.parametrize(
    "answer", [{}, {"gaps": None}, {"gaps": {"mismatch": {}}}, {"gaps": {"mismatch": {"k3": None}}}]
)
def test_an_answer_without_a_figure_is_passed_over(answer: dict[str, object]) -> None:
    answers = Answers()
    answers.take(answer)
    assert answers.mean("mismatch") is None

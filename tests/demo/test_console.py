import io
from dataclasses import replace

from offpolicy_monitor.demo.console import Console, render_progress, render_result
from offpolicy_monitor.demo.progress import DemoResult, Progress

PROGRESS = Progress(
    step=120, seconds=40.0, level=5, reward=0.8125, solved=0.5, length=5.25, rate=12345.0,
    mismatch_k3=1.2e-4, staleness_k3=0.0, waiting=0, lost=0, last_error=None,
)  # fmt: skip
RESULT = DemoResult(
    run="r1", steps=300, seconds=61.5, level=6, reward_first=0.125, reward_last=0.9375, mismatch_k3=1e-4,
    staleness_k3=2e-3, acknowledged=1200, failed=0, dropped=0, last_error=None,
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_reads_as_one_line() -> None:
    assert render_progress(PROGRESS) == (
        "step  120  reward 0.812  right  50%  length 5.2  mismatch k3 1.2e-04  staleness k3 0  12,345 tokens/s"
    )


def test_a_figure_that_the_service_has_not_given_is_a_dash() -> None:
    assert "mismatch k3 -  " in render_progress(replace(PROGRESS, mismatch_k3=None))


def test_lost_posts_are_shown_with_their_reason() -> None:
    lost = replace(PROGRESS, waiting=20, lost=3, last_error="422 no")
    assert render_progress(lost).endswith("  3 posts lost: 422 no")


def test_posts_that_wait_are_shown_where_they_are_many_and_something_is_wrong() -> None:
    waiting = replace(PROGRESS, waiting=20, last_error="503 busy; trying again")
    assert render_progress(waiting).endswith("  20 posts wait: 503 busy; trying again")
    assert render_progress(replace(waiting, waiting=8)) == render_progress(PROGRESS)
    assert render_progress(replace(waiting, last_error=None)) == render_progress(PROGRESS)


def test_the_summary_reads_as_one_line() -> None:
    assert render_result(RESULT) == (
        "reward 0.125 -> 0.938, mean mismatch k3 1.0e-04, 300 steps in 62 s, "
        "1200 posts acknowledged, 0 failed, 0 dropped"
    )


def test_a_run_stopped_before_its_first_step_has_a_summary_too() -> None:
    assert render_result(replace(RESULT, reward_first=None, reward_last=None)).startswith("reward - -> -, ")


def test_a_terminal_gets_one_updating_line() -> None:
    stream, times = Terminal(), iter([0.0, 0.05, 0.1])
    console = Console(stream, lambda: next(times))
    for step in (120, 121, 122):
        console.report(replace(PROGRESS, step=step))
    assert stream.getvalue().count("\n") == 0
    assert stream.getvalue().count("\r") == 2
    console.closing(RESULT)
    assert stream.getvalue().count("\n") == 2


def test_elsewhere_a_line_comes_every_five_seconds() -> None:
    stream, times = io.StringIO(), iter([0.0, 3.0, 5.0, 5.0, 9.0])
    console = Console(stream, lambda: next(times))
    for step in range(4):
        console.report(replace(PROGRESS, step=step))
    assert [line[:9] for line in stream.getvalue().splitlines()] == ["step    0", "step    2"]

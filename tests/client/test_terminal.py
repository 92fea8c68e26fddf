import io

from offpolicy_monitor.client.terminal import ERASE_LINE, Terminal


class Watched(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_said_stands_above_the_line_that_is_written_over() -> None:
    terminal = Terminal(Watched())
    terminal.show("50 %")
    terminal.say("the service is busy")
    terminal.show("75 %")
    terminal.end()
    terminal.say("done")
    assert terminal.stream.getvalue() == (  # pyrefly: ignore[missing-attribute]
        f"{ERASE_LINE}50 %{ERASE_LINE}the service is busy\n50 %{ERASE_LINE}75 %\ndone\n"
    )


def test_elsewhere_lines_come_one_after_the_other_and_not_too_often() -> None:
    stream, times = io.StringIO(), iter([0.0, 4.9, 5.0])
    terminal = Terminal(stream, lambda: next(times))
    for share in (25, 50, 75):
        terminal.offer(lambda share=share: f"{share} %")
    terminal.end()
    assert stream.getvalue() == "25 %\n75 %\n"

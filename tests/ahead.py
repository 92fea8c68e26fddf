"""What the tests would wait for, made while lint leaves a processor idle: `python -m tests.ahead`, called by make test.

The compiled pass over the tokens, which takes a minute, and hypothesis's table of characters, which each process would
make. What is there is not made again. Tests that need what is not there yet make it, or wait for this
process; so its failures are theirs to tell.
"""

import signal


def main() -> None:
    """Make all of it, one after the other."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs beside it ignore Ctrl-C
    from hypothesis import find
    from hypothesis.strategies import text

    from tests.fixtures.fused import cached_pass

    cached_pass()
    find(text(min_size=1), bool)


if __name__ == "__main__":
    main()

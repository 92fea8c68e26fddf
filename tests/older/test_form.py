"""The form of f832f41 that the benchmarks compare with measures what they measure today."""

from tests.benchmarks.older import LEAST, older_form


def test_the_older_form_answers_how_long_it_takes() -> None:
    with older_form() as older:
        assert 0 < older(min(LEAST)) < 60

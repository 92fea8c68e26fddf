"""What a watched process has grown by is told from what a straight line through noise says."""

from random import Random

from tests.chaos.probe import Times
from tests.chaos.watch import MEBIBYTE, Seen, Watch, growth

SECONDS = 600


def life(random: Random, leaks: float, level: float) -> list[Seen]:
    """A process that fills its caches in ten seconds, is noisy by 10 MiB, and leaks so many MiB in SECONDS."""
    found = []
    for at in range(SECONDS):
        memory = level + min(at, 10) * 20 + leaks * at / SECONDS + random.gauss(0, 10)
        descriptors = 50 + random.randrange(8) + leaks * at / SECONDS
        found.append(Seen(at, memory * MEBIBYTE, descriptors, 19 + leaks / 8 * at / SECONDS))
    return found


def test_a_line_through_two_lives_of_different_levels_has_their_one_slope() -> None:
    one = [(float(at), 100.0 + 2 * at) for at in range(11)]
    other = [(float(at), 500.0 + 2 * at) for at in range(21)]
    assert growth([one, other]) == 2.0 * 30
    assert growth([]) == 0.0


def test_a_process_that_only_fills_its_caches_is_flat_and_one_that_leaks_is_not() -> None:
    for leaks, grown in ((0.0, []), (64.0, ["memory", "descriptors", "threads"])):
        random = Random(7)
        lives = {number: life(random, leaks, 300 + 50 * number) for number in range(3)}
        watch = Watch(settling=15, lives=lives)
        assert [sentence.partition(" ")[0] for sentence in watch.not_flat()] == grown
        assert abs(watch.grown()["memory"] / MEBIBYTE - 3 * leaks) < 5


def test_a_line_is_drawn_by_the_highest_of_each_few_points() -> None:
    lives = {number: [Seen(at, at % 7, 0, 0) for at in range(10)] for number in range(3)}
    watch = Watch(lives=lives, births={0: 0.0, 1: 10.0, 2: 20.0}, began=0.0)
    assert watch.peaks(100) == watch.line()
    assert watch.peaks(3) == [(6.0, 6), (16.0, 6), (26.0, 6)]


def test_a_quantile_is_the_time_that_such_a_share_of_the_answers_took_at_most() -> None:
    times = Times([0.2, 0.1, 0.4, 0.3] * 25 + [9.0])
    assert (times.quantile(0.5), times.quantile(0.98), times.quantile(1.0)) == (0.3, 0.4, 9.0)

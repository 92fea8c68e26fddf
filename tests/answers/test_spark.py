"""Block characters: the height is the figure's, on the axis of the pages or on the figure's own."""

from offpolicy_monitor.answers.spark import bars, spark


def test_a_block_is_half_a_power_of_ten_between_those_of_the_pages() -> None:
    assert spark([1e-9, 1e-5, 1e-4, 1e-3, 1e-2, 0.2, 9.0], 7) == "▁▁▃▅▇██"


def test_zero_is_the_lowest_block_and_nothing_is_a_blank() -> None:
    assert spark([0.0, None, 0.1], 3) == "▁ █"


def test_more_values_than_columns_keep_the_largest_of_each_stretch() -> None:
    assert spark([1e-5, 1e-1, 1e-5, 1e-5], 2) == "█▁"
    assert len(spark([1e-4] * 1000, 40)) == 40


def test_other_figures_stand_between_zero_and_their_largest() -> None:
    assert bars([0.0, 0.5, 1.0, None], 4) == "▁▅█ "
    assert bars([-1.0, 0.0, 1.0], 3) == "▁▅█"
    assert bars([0.0, 0.0], 2) == "▁▁"
    assert bars([], 4) == ""

import pytest
import torch
from offpolicy_monitor.demo.task import ASK, END, FIRST_LETTER, PAD, draw_prompts, reward, with_beginning

A, B, C, D = FIRST_LETTER, FIRST_LETTER + 1, FIRST_LETTER + 2, FIRST_LETTER + 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([C, A, B, END], 1.0),
        ([A, B, C, END], 1.0),
        ([A, B, END], 2 / 3),
        ([A, B, C, D, END], 3 / 4),
        ([A, A, B, END], 2 / 3),
        ([A, A, A, A, END], 1 / 4),
        ([D, D, D, END], 0.0),
        ([A, B, PAD, ASK, END], 2 / 4),
        ([A, B, C], 0.5),
        ([END], 0.0),
        ([], 0.0),
    ],
)
def test_an_answer_earns_the_share_of_it_that_is_right(answer: list[int], expected: float) -> None:
    assert reward([A, B, C], answer) == pytest.approx(expected)


def test_a_prompt_holds_different_letters_after_its_padding_and_asks_at_the_end() -> None:
    prompts = draw_prompts(200, 1, level=6, letters=10, width=9, generator=torch.Generator().manual_seed(1))
    lengths = set()
    for row, start, letters in zip(prompts.tokens.tolist(), prompts.starts.tolist(), prompts.letters(), strict=True):
        assert row[:start] == [PAD] * start
        assert row[-1] == ASK
        assert row[start:-1] == letters
        assert len(set(letters)) == len(letters)
        assert all(FIRST_LETTER <= letter < FIRST_LETTER + 10 for letter in letters)
        lengths.add(len(letters))
    assert lengths == {3, 4, 5, 6}


def test_a_prompt_can_begin_with_a_token_of_its_own() -> None:
    plain = draw_prompts(20, 1, level=6, letters=10, width=9, generator=torch.Generator().manual_seed(1))
    begun = with_beginning(plain, 13)
    assert begun.letters() == plain.letters()
    for row, start, letters in zip(begun.tokens.tolist(), begun.starts.tolist(), plain.letters(), strict=True):
        assert row == [PAD] * start + [13, *letters, ASK]


def test_the_answers_to_one_prompt_stand_together() -> None:
    prompts = draw_prompts(3, 4, level=5, letters=10, width=9, generator=torch.Generator().manual_seed(2))
    groups = prompts.tokens.view(3, 4, 9)
    assert torch.equal(groups, groups[:, :1].expand(3, 4, 9))
    assert not torch.equal(groups[0, 0], groups[1, 0])
    assert torch.equal(prompts.starts.view(3, 4), prompts.starts[::4, None].expand(3, 4))

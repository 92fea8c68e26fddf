import torch
from offpolicy_monitor.demo.policy import Policy, Shape, answer_distribution, answer_log_probs

SHAPE = Shape(vocabulary=9, prompt=5, answer=6, width=32, layers=2, heads=4)


def rows(seed: int) -> tuple[Policy, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 9, (16, 11), generator=generator)
    return Policy(SHAPE, generator), tokens, torch.randint(0, 3, (16,), generator=generator)


@torch.no_grad()
def test_later_columns_do_not_change_a_bit_of_earlier_ones() -> None:
    policy, tokens, starts = rows(0)
    whole = answer_distribution(policy, tokens, starts)
    for column in range(1, 6):
        cut = tokens.clone()
        cut[:, 5 + column :] = 0
        assert torch.equal(answer_distribution(policy, cut, starts)[:, : column + 1], whole[:, : column + 1])


@torch.no_grad()
def test_padding_is_not_read() -> None:
    policy, tokens, _ = rows(1)
    starts = torch.full((16,), 2)
    other = tokens.clone()
    other[:, :2] = (other[:, :2] + 1) % 9
    assert torch.equal(answer_distribution(policy, tokens, starts), answer_distribution(policy, other, starts))
    assert not torch.equal(answer_distribution(policy, tokens, starts), answer_distribution(policy, tokens, starts - 1))


@torch.no_grad()
def test_log_probs_are_those_of_the_answer_tokens_and_entropy_of_their_distribution() -> None:
    policy, tokens, starts = rows(2)
    log_probs, entropy = answer_log_probs(policy, tokens, starts)
    logits = policy(tokens, starts).double()
    for row, column in [(0, 0), (3, 2), (15, 5)]:
        distribution = logits[row, 4 + column].softmax(0)
        torch.testing.assert_close(log_probs[row, column].double(), distribution[tokens[row, 5 + column]].log())
        torch.testing.assert_close(entropy[row, column].double(), -(distribution * distribution.log()).sum())


def test_a_seed_fixes_the_weights_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = (Policy(SHAPE, torch.Generator().manual_seed(3)).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(torch.get_rng_state(), before)

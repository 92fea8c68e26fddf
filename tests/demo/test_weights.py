"""Weights of an engine: the levels of NF4, and a merge that is exact before anything was learned."""

import torch
from offpolicy_monitor.demo.weights import NF4, Merging, nf4
from torch import nn


def test_a_weight_becomes_the_nearest_level_of_its_block() -> None:
    weight = torch.tensor([[2.0, -2.0, 0.1, 0.9], [0.0, 0.0, 0.0, 0.0]])
    assert torch.allclose(nf4(weight, 4), torch.tensor([[2.0, -2.0, 2 * NF4[8], 2 * NF4[12]], [0.0] * 4]))
    assert torch.equal(nf4(nf4(weight, 3), 3), nf4(weight, 3))


def test_a_merge_is_exact_at_first_and_rounds_away_what_is_added() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer, x = nn.Linear(32, 16), torch.randn(8, 32)
    merging = Merging(64)
    with torch.no_grad():
        assert torch.allclose(merging(layer)(x), layer(x), atol=1e-6)
        apart = []
        for size in (1e-3, 1e-2, 3e-2):
            layer.weight += size * torch.ones_like(layer.weight)
            apart.append(float((merging(layer)(x) - layer(x)).abs().mean()))
    assert apart == sorted(apart) and apart[0] > 1e-4

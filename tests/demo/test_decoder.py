import pytest
import torch
from offpolicy_monitor.demo.decoder import Decoder
from offpolicy_monitor.demo.policy import Policy, Shape, answer_distribution
from offpolicy_monitor.demo.weights import FORMATS, DenseLinear, Format, Linear, quantise
from torch import Tensor, nn

SHAPE = Shape(vocabulary=9, prompt=5, answer=6, width=32, layers=2, heads=4)


def dense_float32(layer: nn.Linear) -> Linear:
    return DenseLinear(layer.weight.detach().clone(), layer.bias.detach().clone())


def decode(decoder: Decoder, tokens: Tensor, starts: Tensor) -> Tensor:
    """Every answer column's log-probs, the prompt at once and the answer token by token."""
    columns = [decoder.prefill(tokens[:, :5], starts)]
    columns += [decoder.feed(tokens[:, column : column + 1]) for column in range(5, 10)]
    return torch.stack(columns, 1)


@torch.no_grad()
def compare(form: Format) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    policy = Policy(SHAPE, generator)
    tokens = torch.randint(0, 9, (16, 11), generator=generator)
    starts = torch.randint(0, 3, (16,), generator=generator)
    decoder = Decoder(policy, form)
    decode(decoder, tokens.flip(0), starts)  # a block before this one leaves nothing behind
    return decode(decoder, tokens, starts), answer_distribution(policy, tokens, starts)


def test_cached_decoding_computes_the_whole_forward_in_float32() -> None:
    decoded, whole = compare(Format(torch.float32, dense_float32))
    torch.testing.assert_close(decoded, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "least", "most"), [("bfloat16", 1e-3, 0.1), ("int8", 1e-3, 0.1)])
def test_another_precision_differs_and_not_by_much(name: str, least: float, most: float) -> None:
    decoded, whole = compare(FORMATS[name])
    assert least < float((decoded - whole).abs().max()) < most


def test_the_largest_weight_of_a_channel_becomes_127() -> None:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, -1.27, 0.014], [0.0, 0.0, 0.0]]))
        layer.bias.copy_(torch.tensor([0.25, -1.0]))
    quantised = quantise(layer, 8)
    assert quantised.weight.dtype == torch.int8  # pyrefly: ignore[missing-attribute]
    assert quantised.weight.tolist() == [[50, -127, 1], [0, 0, 0]]  # pyrefly: ignore[missing-attribute]
    output = quantised(torch.tensor([[1.0, 1.0, 1.0]]))
    torch.testing.assert_close(output, torch.tensor([[0.5 - 1.27 + 0.01 + 0.25, -1.0]]))

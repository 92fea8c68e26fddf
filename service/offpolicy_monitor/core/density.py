"""The kernel that counts tokens by two log-probs at a time: where the sampled token stood under each of two policies.

Its bins are those of core.histogram for the magnitude of a log-prob, so that they are finest near probability 1.
Shapes: C policies, T tokens. What the counts mean is not known here.
"""

import torch
from torch import Tensor

from offpolicy_monitor.core.cells import Tally
from offpolicy_monitor.core.checks import NUMBERS, check
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.histogram import Layout


def joint_tally(policies: Tensor, layout: Layout, valid: Tensor | None = None) -> Tally:
    """The tally of tokens by the bins of their log-prob under each policy but the first, and under the first.

    policies: [C, T] float32 or float64, nats, finite, C >= 2; valid: [C - 1, T] of 0 and 1, any number's dtype, or
    None for all -> cells [C - 1, T] that count to [K + 1, K + 1], K the largest key of `layout`, whose splits are not
    looked at: a log-prob x, float64 rounded to float32, stands in bin 0 where -x < 2**smallest_exponent, above 0 too,
    and in bin K where -x >= 2**largest_exponent. Raises ValueError for another rank or length, TypeError for another
    dtype.
    """
    check("policies", policies, -1, -1)
    check("valid", valid, len(policies) - 1, policies.shape[1], of=NUMBERS)
    bins, bits = layout.largest_key + 1, layout.mantissa_bits
    inside = policies.float().clamp(-(2.0**layout.largest_exponent), -0.75 * 2.0**layout.smallest_exponent)
    tops = inside.view(torch.int32) >> (23 - bits)
    first = (1 << (8 + bits)) - ((127 + layout.smallest_exponent) << bits) + 1
    offset = constant([(bins + 1) * first], torch.int64, policies.device)
    cells = torch.add(tops.select(0, 0), tops.narrow(0, 1, len(tops) - 1), alpha=bins) + offset
    return Tally(cells, bins * bins, (valid,))

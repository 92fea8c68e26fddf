"""Sample lines of the exposition formats; Prometheus text and OpenMetrics spell them alike.

prometheus_client writes the head of a family, which the two formats spell differently; what it takes for each sample is
too slow for the hundred thousand of a full scrape. Here a line is two pieces that all runs share, the run between them,
and the number. Knows no families.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

Encode = Callable[["OneFamily"], bytes]
END: Final = b"# EOF\n"
ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
#: Label sets of a family that are kept: more than 200 runs have with all the method rows that each may choose.
KEPT: Final = 1 << 16
#: From here on Go writes an exponent where Python does not.
PLAIN_BELOW: Final = 1e6


@dataclass(frozen=True)
class OneFamily:
    """A registry for an encoder of prometheus_client: it holds one family."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        """The family."""
        return (self.metric,)


def head(metric: Metric, encode: Encode) -> bytes:
    """The HELP and TYPE lines of a family without samples, in the format of the encoder."""
    return encode(OneFamily(metric)).removesuffix(END)


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    return value.translate(ESCAPES)


class Around(dict[tuple[str, ...], tuple[str, str]]):
    """Values of a sample's labels -> what its line has before and after the escaped run.

    `labels` are those beside the run; a line shows all in the order of their names.
    """

    def __init__(self, name: str, labels: tuple[str, ...]) -> None:
        super().__init__()
        self._name, self._labels = name, labels

    def __missing__(self, values: tuple[str, ...]) -> tuple[str, str]:
        """Make it and keep it; when there are too many, from names of methods that come and go, begin anew."""
        if len(self) >= KEPT:
            self.clear()
        found = self[values] = self._made(values)
        return found

    def _made(self, values: tuple[str, ...]) -> tuple[str, str]:
        shown = sorted([("run", ""), *zip(self._labels, map(escaped, values), strict=True)])
        index = shown.index(("run", ""))
        before = "".join([f'{label}="{value}",' for label, value in shown[:index]])
        after = "".join([f',{label}="{value}"' for label, value in shown[index + 1 :]])
        return f'{self._name}{{{before}run="', f'"{after}}} '


def line(around: tuple[str, str], run: str, value: float) -> str:
    """One sample."""
    if -PLAIN_BELOW < value < PLAIN_BELOW:
        return f"{around[0]}{run}{around[1]}{float(value)!r}\n"
    # As Go writes it; NaN and infinities come here too.
    number: str = floatToGoString(value)
    return f"{around[0]}{run}{around[1]}{number}\n"

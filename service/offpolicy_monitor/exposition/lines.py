"""Sample lines of the exposition formats; Prometheus text and OpenMetrics spell them alike.

prometheus_client writes the head of a family, which the two formats spell differently; what it takes for each sample is
too slow for the hundred thousand of a full scrape. Knows no families.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

Encode = Callable[["OneFamily"], bytes]
END = b"# EOF\n"
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


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


def line(name: str, labels: Mapping[str, str], value: float) -> str:
    """One sample; labels in the order of their names."""
    shown = ",".join([f'{label}="{labels[label].translate(ESCAPES)}"' for label in sorted(labels)])
    number: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return f"{name}{{{shown}}} {number}\n"

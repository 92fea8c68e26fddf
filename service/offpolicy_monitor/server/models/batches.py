"""What a trainer is answered, and whoever evaluates a batch."""

from pydantic import Field

from offpolicy_monitor.server.figure_shapes import OF_A_SHARD
from offpolicy_monitor.server.models.alerts import Alert
from offpolicy_monitor.server.models.figures import ALWAYS_OF_A_SHARD, MethodFigures, SequenceFigures, with_figures
from offpolicy_monitor.server.models.shape import Shape


class BatchReceipt(Shape):
    """Where the shard stands, and the run after it: the whole answer with `detail=none`."""

    run: str
    step: int
    minibatch: int
    shard: int
    stored: bool = Field(description="False only for the first half of a two-phase post, which is kept in memory.")
    duplicate: bool
    received_shards: int
    shards: int
    complete: bool
    verdict: str = Field(description="skip while a critical alert of the run is active, warn while a warning is.")
    alerts: list[Alert] = Field(description="The run's alerts that are not over, the worst of each rule.")


class BatchAnswer(BatchReceipt):
    """The same, and the figures of this shard alone."""

    model_config = with_figures(OF_A_SHARD, ALWAYS_OF_A_SHARD)


class EvaluateAnswer(Shape):
    """Figures of the batch; `methods` in the order asked."""

    model_config = with_figures(OF_A_SHARD, ALWAYS_OF_A_SHARD)

    methods: list[MethodFigures] = Field(description="In the order asked.")
    per_sequence: list[SequenceFigures] = Field([], description="With detail sequence or token alone.")

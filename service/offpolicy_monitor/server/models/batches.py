"""What a trainer is answered, and whoever evaluates a batch."""

from pydantic import Field

from offpolicy_monitor.server.models.alerts import Alert
from offpolicy_monitor.server.models.figures import Figures, Gaps, Methods, MismatchLag, NoiseFloor, Routing, Support
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

    tokens: int
    sequences: int
    empty_sequences: int
    excluded_tokens: dict[str, int]
    suspect_tokens: dict[str, int]
    gaps: Gaps
    methods: Methods
    routing: Routing = Field({})
    noise_floor: NoiseFloor = Field({})
    support: Support = Field({})
    mismatch_lag: MismatchLag = Field({})


class EvaluateAnswer(Shape):
    """Figures of the batch; `methods` in the order asked."""

    tokens: int
    sequences: int = Field(description="How many, at every level of detail.")
    gaps: Gaps
    methods: list[Figures] = Field(
        description="In the order asked. With detail sequence or token also `keep_sequences`; with token also "
        "`keep_tokens`, and `weights` of a method that gives any."
    )
    routing: Routing = Field({})
    noise_floor: NoiseFloor = Field({})
    support: Support = Field({})
    per_sequence: list[Figures] = Field([], description="One object per sequence, with detail sequence or token alone.")

"""Contract: the arrays of a batch as data: what each holds, and whether it has one entry a token or a sequence.

The same rows as the service's own schema, which a trainer cannot import (it needs pydantic); a test holds the two
equal. Knows names and kinds, nothing of values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Per = Literal["token", "sequence", "either"]

LOGPROBS = ("sampling_logprobs", "old_logprobs", "logprobs")
CURRENT = "logprobs"


@dataclass(frozen=True)
class Row:
    """One array: the numpy kinds of its dtypes, what it has an entry for, dimensions behind the position.

    `listed` is the dtype that Python's own numbers become, as the service reads those of JSON; None: numpy's choice.
    """

    kinds: str
    per: Per
    inner_rank: int = 0
    listed: str | None = None


FLOAT, INT, ANY = "f", "iu", "fiub"

ARRAYS: Mapping[str, Row] = {
    "sampling_logprobs": Row(FLOAT, "token", listed="f4"),
    "old_logprobs": Row(FLOAT, "token", listed="f4"),
    "logprobs": Row(FLOAT, "token", listed="f4"),
    "lengths": Row(INT, "sequence", listed="i8"),
    "mask": Row(ANY, "token"),
    "advantages": Row(FLOAT, "either", listed="f4"),
    "policy_versions": Row(INT, "either", listed="i8"),
    "rewards": Row(FLOAT, "sequence", listed="f4"),
    "group_ids": Row(INT, "sequence", listed="i8"),
    "turns": Row(INT, "token", listed="i8"),
    "entropy": Row(FLOAT, "token", listed="f4"),
    "sampling_experts": Row("u", "token", 2, "u2"),
    "old_experts": Row("u", "token", 2, "u2"),
    "experts": Row("u", "token", 2, "u2"),
}

"""Inquiry: what a monitor answers about its run and others, by asking the service.

Synchronous, on a connection of its own, and it raises: for people and scripts, beside `log`, which does neither. Knows
the paths by `read` and the shapes by `questions`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from offpolicy_monitor.client import questions
from offpolicy_monitor.client.arrays import bfloat16, values_of
from offpolicy_monitor.client.config import Config
from offpolicy_monitor.client.read import Reader
from offpolicy_monitor.client.shard import make_envelope
from offpolicy_monitor.client.values import copies
from offpolicy_monitor.wire.frame import MEDIA_TYPE, encode


class Inquiry:
    """The questions of a `Monitor`; `_config` says which service, and which run where none is named."""

    _config: Config

    def evaluate(
        self,
        *,
        methods: Sequence[Mapping[str, object]] | None = None,
        detail: str = "none",
        step: int = 0,
        labels: Mapping[str, object] | None = None,
        sequence_ids: Sequence[object] | None = None,
        **arrays: Any,
    ) -> dict[str, Any]:
        """What the service answers to POST /v1/evaluate; nothing is stored. Synchronous, and it raises.

        `methods` are rows of docs/methods.md (None: the catalogue). With detail "sequence" or "token" the answer's
        `methods` hold keep_sequences [S] bool, keep_tokens bool and weights float32 as numpy arrays: [S, L] where the
        log-probs were padded, else lists of S arrays; `per_sequence` is a list of S objects. Raises Mistake, Refusal,
        Unavailable, OSError.
        """
        envelope = make_envelope({"step": step, "minibatch": 0, "shard": 0, "shards": 1}, labels, sequence_ids)
        if methods is not None:
            envelope["methods"] = [dict(row) for row in methods]
        values = values_of(arrays, rollout=False)
        copied, wait = copies(values)
        wait()
        body = encode(envelope, copied, bfloat16(values))
        answer = self._reader().post("/v1/evaluate", {"detail": detail}, body, MEDIA_TYPE)
        shape = next(value.shape for name, value in values.items() if name.endswith("logprobs"))
        return questions.with_arrays(answer, shape)

    def runs(self) -> list[dict[str, Any]]:
        """All runs of the service, newest first, as GET /v1/runs has them. Raises Refusal, Unavailable, OSError."""
        return self._reader().all_runs()

    def verdict(self, run: str | None = None) -> dict[str, Any]:
        """What this run comes to, or another: `sentence`, `since_step`, `half`, `cause`, `action` and more.

        Raises Refusal, Unavailable, OSError.
        """
        return self._reader().verdict(run or self._config.run)

    def diagnosis(self, run: str | None = None, *, first: int | None = None, last: int | None = None) -> dict[str, Any]:
        """What may cause the mismatch: `hypotheses`, best first, and `steps`, of `first` to `last`, that they are of.

        Raises Refusal, Unavailable, OSError.
        """
        return self._reader().diagnosis(run or self._config.run, first, last)

    def checks(self, run: str | None = None) -> dict[str, Any]:
        """What is wrong with the way a run is posted: `findings`, warnings first, each with the line to change.

        Raises Refusal, Unavailable, OSError.
        """
        return self._reader().checks(run or self._config.run)

    def alerts(
        self, run: str | None = None, *, state: str | None = None, merge: int | None = None
    ) -> list[dict[str, Any]]:
        """The newest alerts of this run, or of another, up to 1,000: all, or those "active", "pending" or "resolved".

        Those of one rule that lie up to `merge` steps apart come as one. Raises Refusal, Unavailable, OSError.
        """
        return list(self._reader().alerts(run or self._config.run, state, merge)["alerts"])

    def series(
        self,
        field: str | Sequence[str],
        *,
        run: str | None = None,
        first: int | None = None,
        last: int | None = None,
        points: int | None = None,
        by: str | None = None,
        pandas: bool = False,
    ) -> Any:
        """Figures over the steps `first` to `last`, of this run or another: "gaps.mismatch.k3", or a list of up to 32.

        Of one, a dict of numpy columns step, minibatch (int64) and value (float64, NaN where absent; words and times
        are str or None); of a list, a dict of these by field. As a pandas frame of a list: step, minibatch and a column
        per field. One entry per gradient step, or with by="step" the last one of each; more than `points` (1,000) are
        thinned out. Raises Refusal, Unavailable, OSError, ConfigurationError.
        """
        fields = [field] if isinstance(field, str) else list(dict.fromkeys(field))
        answer = self._reader().series(run or self._config.run, fields, first, last, points, by)
        if isinstance(field, str):
            return questions.columns(answer, pandas)
        return questions.several(answer if len(fields) > 1 else {"series": [answer]}, pandas)

    def _reader(self) -> Reader:
        return Reader(self._config.url, self._config.timeout, self._config.token)

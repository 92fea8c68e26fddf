"""The table of checks: what can be wrong with the way a run is posted, how it is seen, and the line to change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from offpolicy_monitor.doctor import marks
from offpolicy_monitor.doctor.posted import Posted

Severity = Literal["warning", "info"]
#: Hypotheses of the diagnosis that are of how log-probs are taken, and not of the policies.
OF_POSTING: Final = ("temperature", "off_by_one", "quantised", "decimal", "sampling", "sampled_padding")


@dataclass(frozen=True)
class Check:
    """What can be wrong: its name, a title, how it is seen, and the line to change.

    severity  warning where figures are wrong or steps never count; info where something merely cannot be told
    found     what was found, in a sentence; None where there is nothing
    """

    name: str
    severity: Severity
    title: str
    found: Callable[[Posted], str | None]
    change: str


CHECKS: Final = (
    Check(
        "one_shard_of_many", "warning", "One process posts for many", marks.one_of_many,
        "log(shard=0, shards=1), or call log on every data-parallel rank with its own shard=",
    ),
    Check(
        "incomplete_steps", "warning", "Steps never become complete", marks.never_complete,
        "log(shards=...) is how many processes post; with parallel ranks of the same tokens place=in_groups_of(n), "
        "with a pipeline in_stages(n, p)",
    ),
    Check(
        "same_tokens", "warning", "Two shards hold the same tokens", marks.same_tokens,
        "place=in_groups_of(n), n the tensor-, context- and sequence-parallel ranks that hold the same tokens",
    ),
    Check(
        "shard_apart", "warning", "One shard disagrees with the others", marks.shard_apart,
        "compare that rank's mask, its shift of log-probs against tokens, and its engine's weights with another rank's",
    ),
    Check(
        "jumping_steps", "warning", "Steps jump", marks.jumping,
        "log(step=training step, minibatch=gradient step within it): a step is not the optimizer's count",
    ),
    Check(
        "old_is_sampling", "warning", "old_logprobs are a copy of sampling_logprobs", marks.old_is_sampling,
        "log(old_logprobs=...) recomputed by the trainer, or none in a bypass mode (verl: watched_loss(bypass=True)); "
        'where engine and trainer agree to the bit: Monitor(profile="bitwise")',
    ),
    Check(
        "old_is_current", "warning", "logprobs are a copy of old_logprobs", marks.old_is_current,
        "log(logprobs=...) of this gradient step's forward, log(old_logprobs=...) of the policy before the first one",
    ),
    Check(
        "no_old_logprobs", "info", "Mismatch and staleness are one", marks.no_old,
        "log(old_logprobs=...), recomputed by the trainer before its first update; docs/frameworks says what brings it",
    ),
    Check(
        "no_sampling_logprobs", "info", "The engine's log-probs are missing", marks.no_sampling,
        "log(sampling_logprobs=...) as the engine returned them; docs/frameworks says what makes it return them",
    ),
    Check(
        "no_logprobs", "info", "The current policy's log-probs are missing", marks.no_current,
        "log(logprobs=...) of each gradient step's forward; docs/frameworks says which hook has them",
    ),
    Check(
        "lagged_mismatch", "info", "Version lag is in the mismatch", marks.lagged_mismatch,
        "log(old_logprobs=...) of the weights that sampled, where the trainer has them still; else the mismatch is "
        "mismatch_lag.k3_current, of the tokens that the newest weights sampled",
    ),
    Check(
        "no_advantages", "info", "Advantages are missing", marks.no_advantages,
        "log(advantages=...), one per sequence or per token",
    ),
    Check(
        "no_policy_version", "info", "Versions are missing", marks.no_version,
        "log(policy_version=...): how often weights have been synced to the engines",
    ),
    Check(
        "no_policy_versions", "info", "Versions that sampled are missing", marks.no_versions,
        "log(policy_versions=...): per sequence or per token, the version of the weights that sampled it",
    ),
    Check(
        "versions_of_steps", "info", "Versions count optimizer steps", marks.versions_of_steps,
        "log(policy_version=...) goes up by one with each weight sync",
    ),
)  # fmt: skip


def look(posted: Posted) -> list[dict[str, Any]]:
    """[{name, severity, title, summary, change}] of what is wrong, warnings first."""
    found = [_row(check, said) for check in CHECKS if (said := check.found(posted)) is not None]
    found += [_of_cause(name, *told) for name, told in posted.causes.items() if name in OF_POSTING]
    return sorted(found, key=lambda row: row["severity"] != "warning")


def _row(check: Check, said: str) -> dict[str, Any]:
    return {
        "name": check.name,
        "severity": check.severity,
        "title": check.title,
        "summary": said,
        "change": check.change,
    }


def _of_cause(name: str, title: str, summary: str, change: str) -> dict[str, Any]:
    """A hypothesis of the diagnosis in the same shape."""
    title = title[0].upper() + title[1:]
    return {"name": name, "severity": "warning", "title": title, "summary": summary, "change": change}

"""Temperature: log-probs of two sides of which only one is after the sampling temperature, which is said once.

An engine divides its logits by the temperature before it samples; whether the log-probs that it gives, and those that
the trainer computes, are of these logits is a setting of each. Where they are not of the same, every ratio has the
temperature in it. Knows no framework: an adapter says what it can see of its own.
"""

from typing import Final

from offpolicy_monitor.client.counters import LOGGER

#: vLLM's `logprobs_mode` by whether its log-probs are after the temperature; `raw_logprobs` is its default.
VLLM: Final = {"raw_logprobs": False, "processed_logprobs": True}


class Scaling:
    """Warns where sides differ. `hook` is what reads them; `advice` the setting that makes them alike."""

    def __init__(self, hook: str, advice: str) -> None:
        self.hook, self.advice, self.told = hook, advice, False

    def look(self, temperature: object, **scaled: bool | None) -> None:
        """Compare the sides that are named: `mu=True` is after the temperature, `pi=False` before, None is not known.

        Nothing is said at a temperature of 1, where both are the same, nor at one of 0 or one that is no number.
        """
        sides = {after: [name for name, is_after in scaled.items() if is_after is after] for after in (True, False)}
        if self.told or not (sides[True] and sides[False]) or not _changes(temperature):
            return
        self.told = True
        LOGGER.warning(
            "%s: %s after the sampling temperature of %s, %s before it, so that every ratio has it in it: %s",
            self.hook, _named(sides[True]), temperature, _named(sides[False]), self.advice,
        )  # fmt: skip


def _changes(temperature: object) -> bool:
    return isinstance(temperature, int | float) and temperature not in (0, 1)


def _named(sides: list[str]) -> str:
    return f"{' and '.join(sides)} {'is' if len(sides) == 1 else 'are'}"

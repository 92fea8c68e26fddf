"""Scenarios of the demo as data: what goes wrong with a run from its onset on, and how that grows.

A scenario changes the configuration of a training step; what the configuration then does is not known here. Needs no
torch, so that `--help` stays quick.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.faults import Fault

#: (configuration, training steps since the onset) -> the configuration of that step.
Change = Callable[[DemoConfig, int], DemoConfig]


@dataclass(frozen=True)
class Scenario:
    """One scenario by name; `fault` is there before the onset already."""

    name: str
    summary: str
    change: Change
    fault: Fault | None = None


def planted(name: str, strength: float) -> Change:
    """A fault of one strength from the onset on."""
    return lambda config, after: replace(config, fault=Fault(name, strength))


def growing_noise(first: float, last: float, over: int) -> Change:
    """Noise of the engine's logits that grows linearly in `over` steps."""

    def change(config: DemoConfig, after: int) -> DemoConfig:
        return replace(config, fault=Fault("noise", first + (last - first) * min(1.0, (after + 1) / over)))

    return change


def spikes(config: DemoConfig, after: int) -> DemoConfig:
    """A step of loud noise at the onset, and at each fourth step after it."""
    return replace(config, fault=Fault("noise", 0.6)) if after % 4 == 0 else config


def faster(times: float) -> Change:
    """A larger learning rate: weights move further between the gradient steps on one rollout."""
    return lambda config, after: replace(
        config,
        learning_rate=times * config.learning_rate,
        learning_rate_floor=times * config.learning_rate_floor,
    )


def longer(config: DemoConfig, after: int) -> DemoConfig:
    """All prompts are as long as they get, and so are the answers."""
    return replace(config, shortest=config.top_level)


def unsynced(config: DemoConfig, after: int) -> DemoConfig:
    """The engine keeps the weights that it has."""
    return replace(config, synced=False)


def together(*changes: Change) -> Change:
    """Several changes at once."""

    def change(config: DemoConfig, after: int) -> DemoConfig:
        for each in changes:
            config = each(config, after)
        return config

    return change


SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario("healthy", "nothing goes wrong", lambda config, after: config),
        Scenario("slow-drift", "the engine's noise grows from step to step", growing_noise(0.02, 0.4, 40)),
        Scenario("spike", "the engine is noisy for single steps", spikes),
        Scenario(
            "stale-replica",
            "one of two engines takes only each eighth weight sync",
            planted("stale_weights", 8),
            Fault("stale_weights", 1),
        ),
        Scenario("top-p", "the engine samples from a nucleus of 0.9, renormalised", planted("top_p", 0.9)),
        Scenario("temperature", "the engine samples at temperature 0.8", planted("temperature", 0.8)),
        Scenario("off-by-one", "the trainer cuts answers out one column early", planted("off_by_one", 1.0)),
        Scenario("kv-cache", "the engine caches keys and values in float8", planted("kv_cache", 4)),
        Scenario(
            "sampled-padding",
            "the engine samples the trainer's padding now and then",
            planted("sampled_padding", 0.002),
        ),
        Scenario("nf4-merge", "each sync merges what was learned into NF4 weights", planted("nf4_merge", 64)),
        Scenario("truncation", "answers are cut after three tokens", planted("cut", 3)),
        Scenario(
            "dropped-stale-data",
            "answers take up to 6 training steps, and those older than 1 are dropped",
            planted("dropped_stale", 1),
            Fault("dropped_stale", 1_000_000),
        ),
        Scenario("nan", "one log-prob of the engine in a hundred is NaN", planted("nan", 0.01)),
        Scenario("length-surge", "all prompts are as long as they get", longer),
        Scenario("staleness", "the learning rate is ten times as high", faster(10)),
        Scenario("sync-broken", "the engine takes no more weight syncs", unsynced),
        Scenario(
            "collapse",
            "noise grows, answers become longer and the learning rate is ten times as high, all at once",
            together(growing_noise(0.05, 1.0, 20), longer, faster(10)),
        ),
    )
}


def config_at(config: DemoConfig, step: int) -> DemoConfig:
    """The configuration of one training step, with what its scenario does to it by then."""
    scenario = SCENARIOS[config.scenario]
    if config.fault is not None and step < config.fault_from:
        config = replace(config, fault=None)
    if step >= config.onset:
        return scenario.change(config, step - config.onset)
    return config if scenario.fault is None else replace(config, fault=scenario.fault)


def describe_scenarios() -> str:
    """All scenarios in a few words each, for the help."""
    return "; ".join(f"{scenario.name}: {scenario.summary}" for scenario in SCENARIOS.values())

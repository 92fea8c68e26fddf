"""Backend: what a run trains, and what samples for it.

The demo's own policy and engine, or a Llama and a real engine.
"""

from typing import Protocol

from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.replicas import TAKES_TURNS, Replicas
from offpolicy_monitor.demo.sampler import Rescores, Rescoring, Sampler, make_sampler


class Backend(Protocol):
    """`policy` is the class of what is trained; `sampler` gives what samples with a configuration's fault."""

    @property
    def policy(self) -> type[Policy]:
        """Made of a Shape and a generator."""

    def sampler(self, config: DemoConfig, policy: Policy) -> Sampler:
        """The engine, or two of them where one is to go stale."""


class BuiltIn:
    """The demo's own transformer and its own decoder: torch is all that it needs."""

    policy = Policy

    def sampler(self, config: DemoConfig, policy: Policy) -> Sampler:
        """The engine, or two of them where one is to go stale."""
        engine = asked(config, make_sampler(config.sampler, policy, config.fault))
        if config.fault is None or config.fault.name not in TAKES_TURNS:
            return engine
        return Replicas(engine, asked(config, make_sampler(config.sampler, policy)), config.fault)


def asked(config: DemoConfig, engine: Rescores) -> Sampler:
    """An engine, which rescores what it wrote where a run asks for that."""
    return Rescoring(engine) if config.rescored else engine


def backend_of(config: DemoConfig) -> Backend:
    """The one that a configuration asks for; a real engine's library is imported when it is called for."""
    if config.engine is None:
        return BuiltIn()
    from offpolicy_monitor.demo.engines.backend import engines

    return engines(config.engine)

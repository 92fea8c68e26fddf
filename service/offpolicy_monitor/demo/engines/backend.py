"""RealEngines: a Llama as the policy, and samplers by real engines, each of which is opened once."""

from offpolicy_monitor.demo.backend import asked
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.engines.engine import Engine, Open, Options
from offpolicy_monitor.demo.engines.kinds import ENGINES, EngineName
from offpolicy_monitor.demo.engines.llama import Llama
from offpolicy_monitor.demo.engines.sampler import RealSampler, options_of
from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.replicas import TAKES_TURNS, Replicas
from offpolicy_monitor.demo.sampler import Sampler


class RealEngines:
    """The engines of one run, by their options and the replica that they are; `open_engine` opens one."""

    policy = Llama

    def __init__(self, open_engine: Open) -> None:
        self.open = open_engine
        self.opened: dict[tuple[Options, int], Engine] = {}

    def sampler(self, config: DemoConfig, policy: Policy) -> Sampler:
        """The engine with the run's present fault, or two of them where one is to go stale."""
        if config.fault is None or config.fault.name not in TAKES_TURNS:
            return self._one(config, policy, config.fault, 0)
        fresh, stale = (self._one(config, policy, None, replica) for replica in (0, 1))
        return Replicas(fresh, stale, config.fault)

    def _one(self, config: DemoConfig, policy: Policy, fault: Fault | None, replica: int) -> Sampler:
        assert isinstance(policy, Llama)
        options = options_of(_precision(config, fault), config.seed, fault)
        if (options, replica) not in self.opened:
            self.opened[options, replica] = self.open(policy, options)
        return asked(config, RealSampler(self.opened[options, replica], policy, fault))


def _precision(config: DemoConfig, fault: Fault | None) -> str:
    """The engine's own int8 where it has one and that is what is planted."""
    own = config.engine is not None and "int8" in ENGINES[config.engine].precisions
    return "int8" if own and fault is not None and fault.name == "int8" else config.sampler


def engines(name: EngineName) -> RealEngines:
    """The engines of that name; their library is imported here."""
    if name == "vllm":
        from offpolicy_monitor.demo.engines.vllm import Vllm

        return RealEngines(Vllm)
    from offpolicy_monitor.demo.engines.ct2 import CTranslate2

    return RealEngines(CTranslate2)

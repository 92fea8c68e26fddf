"""Shares: what one worker may take of what the settings allow the service.

A bound of memory, threads or connections is that of all workers together, whatever their number: each has an even
share. What a run may send and how many runs may begin is counted together. Every other limit is of one request.
"""

from typing import Final

from offpolicy_monitor.settings import Settings

#: Settings that the workers share evenly.
SHARED: Final = (
    "torch_threads",
    "measure_threads",
    "inflight_bytes",
    "decoding_bytes",
    "evaluate_bytes",
    "answer_bytes",
    "rollout_bytes",
    "recent_bytes",
    "max_connections",
    "max_listeners",
)


def share_of(settings: Settings) -> Settings:
    """The settings of one worker; none of its shares is nothing where the whole is something.

    It has no process beside it: the other workers are what the processors are for.
    """
    whole = {name: getattr(settings, name) for name in SHARED}
    shares = {name: max(min(1, of_all), of_all // settings.workers) for name, of_all in whole.items()}
    return settings.model_copy(update={**shares, "measure_processes": 0})

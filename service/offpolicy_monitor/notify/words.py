"""An alert in words, and the addresses it leads to: what webhook and Alertmanager say alike."""

from offpolicy_monitor.notify.ports import Alert


def page(public_url: str, alert: Alert) -> str:
    """The run's page at the step where the alert began; names of runs need no escaping."""
    began = "" if alert["since_step"] is None else f"?step={alert['since_step']}"
    return f"{public_url}/runs/{alert['run']}{began}"


def description(alert: Alert, message: str | None) -> str:
    """What the alert says; of an older release's, the figure, its threshold and the steps as far as known."""
    if message:
        return f"run {alert['run']}: {message}"
    said = [f"run {alert['run']}: {alert['expression']}"]
    if alert["value"] is not None:
        said.append(f"is {alert['value']:.4g}")
    if alert["threshold"] is not None:
        said.append(f"(threshold {alert['threshold']:.4g})")
    if alert["last_step"] is not None:
        said.append(f"at step {alert['last_step']}")
    if alert["breach_steps"] and alert["since_step"] is not None:
        said.append(f"and has been beyond it since step {alert['since_step']}, for {alert['breach_steps']} steps")
    return " ".join(said)

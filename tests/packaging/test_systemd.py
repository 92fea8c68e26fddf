"""deploy/systemd: what the unit says of the service. `make deployment` has systemd itself read it."""

from configparser import RawConfigParser
from pathlib import Path

from offpolicy_monitor.server.process import END_WITHIN
from offpolicy_monitor.settings import Settings

from scripts.dockerfile.instructions import instructions

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "systemd"
PROGRAM = "/opt/offpolicy-monitor/bin/offpolicy-monitor"


def unit() -> RawConfigParser:
    """The unit; of a key that stands twice the last one."""
    parser = RawConfigParser(strict=False, delimiters=("=",))
    parser.read(FOLDER / "offpolicy-monitor.service")
    return parser


def example(name: str) -> dict[str, str]:
    """Variables of a file, those that are commented out too."""
    lines = [line.removeprefix("# ") for line in (FOLDER / name).read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line.startswith("OFFPOLICY_"))


def test_the_unit_brings_the_schema_up_to_date_and_serves_as_a_user_of_its_own() -> None:
    service = unit()["Service"]
    assert (service["ExecStartPre"], service["ExecStart"]) == (f"{PROGRAM} db upgrade", f"{PROGRAM} serve")
    assert service["User"] == service["Group"] == "offpolicy"
    # Where the image has it, so that both are installed by the same commands.
    assert ("RUN", f"python -m venv --without-pip {PROGRAM[:22]}") in instructions((ROOT / "Dockerfile").read_text())


def test_the_service_has_the_time_that_its_end_takes() -> None:
    assert int(unit()["Service"]["TimeoutStopSec"]) > END_WITHIN


def test_what_it_may_not_do_is_said() -> None:
    service = unit()["Service"]
    assert service["CapabilityBoundingSet"] == "" and service["ProtectSystem"] == "strict"
    yes = (
        "NoNewPrivileges",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectHome",
        "ProtectKernelTunables",
        "RestrictSUIDSGID",
    )
    assert {service[name] for name in yes} == {"yes"}
    # Compiled code is written, then run.
    assert "MemoryDenyWriteExecute" not in service


def test_the_example_names_settings_that_exist_and_asks_for_tokens() -> None:
    named = example("environment.example")
    assert set(named) <= {Settings.variable(name) for name in Settings.model_fields}
    assert (named["OFFPOLICY_AUTH"], named["OFFPOLICY_HOST"]) == ("required", "127.0.0.1")
    assert named["OFFPOLICY_WEBHOOK_SECRET"] == ""


def test_what_the_unit_reads_and_writes_is_where_it_says() -> None:
    service = unit()["Service"]
    assert service["EnvironmentFile"] == "/etc/offpolicy-monitor/environment"
    home = f"/var/lib/{service['StateDirectory']}"
    assert service["Environment"] == f"HOME={home} XDG_CACHE_HOME={home}/.cache"

"""compose.yaml is valid, keeps to this machine, and wires what is in dashboards/ to where each program looks for it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from offpolicy_monitor._version import __version__
from offpolicy_monitor.server.process import END_WITHIN
from offpolicy_monitor.settings import Settings

from tests.fixtures.tools import require_tool

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "dashboards"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def provisioned(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DASHBOARDS / "provisioning" / name / "offpolicy.yaml").read_text())
    return document


def mounts(service: str) -> dict[str, str]:
    """Path in the container -> folder of the checkout, or volume."""
    return {volume.split(":")[1]: volume.split(":")[0] for volume in SERVICES[service]["volumes"]}


def test_the_schema_of_compose_accepts_the_file() -> None:
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, ROOT / "compose.yaml"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_schema_of_compose_refuses_a_wrong_key(tmp_path: Path) -> None:
    wrong = (ROOT / "compose.yaml").read_text().replace("healthcheck:", "healthchecks:")
    (tmp_path / "compose.yaml").write_text(wrong)
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, tmp_path / "compose.yaml"], capture_output=True, timeout=60)
    assert checked.returncode == 1


def test_the_service_comes_with_database_prometheus_alertmanager_and_grafana() -> None:
    assert set(SERVICES) == {"service", "postgres", "prometheus", "alertmanager", "grafana"}
    assert SERVICES["service"]["image"] == f"offpolicy-monitor:{__version__}"
    assert SERVICES["service"]["build"] == {"context": ".", "args": {"VARIANT": "${VARIANT:-cpu}"}}


def test_the_service_writes_in_its_volume_alone_and_has_the_time_that_its_end_takes() -> None:
    service = SERVICES["service"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert list(mounts("service")) == ["/var/lib/offpolicy-monitor"]
    assert "VOLUME /var/lib/offpolicy-monitor\n" in (ROOT / "Dockerfile").read_text()
    assert int(service["stop_grace_period"].removesuffix("s")) > END_WITHIN


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_a_health_check_and_a_pinned_image(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    image = SERVICES[name]["image"]
    assert re.search(r":v?\d+\.\d+", image), f"{image} is not pinned"


def test_ports_are_published_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 4
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_volume_is_named_and_every_mounted_folder_exists() -> None:
    sources = [source for name in SERVICES if "volumes" in SERVICES[name] for source in mounts(name).values()]
    assert {source for source in sources if not source.startswith(".")} == set(COMPOSE["volumes"])
    assert [source for source in sources if source.startswith(".") and not (ROOT / source).is_dir()] == []


def test_the_service_migrates_before_it_serves_and_waits_for_the_database() -> None:
    service = SERVICES["service"]
    assert service["command"][-1] == "offpolicy-monitor db upgrade && exec offpolicy-monitor serve"
    assert service["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert "@postgres:5432/offpolicy" in service["environment"]["OFFPOLICY_DATABASE_URL"]


def test_nobody_is_let_in_without_a_token_but_prometheus_which_shows_the_same_to_whoever_reaches_it() -> None:
    environment = SERVICES["service"]["environment"]
    assert (environment["OFFPOLICY_AUTH"], environment["OFFPOLICY_OPEN_METRICS"]) == ("required", "true")
    image = (ROOT / "Dockerfile").read_text()
    assert "OFFPOLICY_AUTH=required" in image and "OFFPOLICY_HOST=0.0.0.0" in image
    assert "insecure" not in image + (ROOT / "compose.yaml").read_text()


def test_the_environment_names_settings_that_exist() -> None:
    named = set(SERVICES["service"]["environment"])
    assert named <= {Settings.variable(name) for name in Settings.model_fields}


def test_promtool_accepts_the_configuration_of_prometheus() -> None:
    config = DASHBOARDS / "prometheus" / "prometheus.yaml"
    checked = subprocess.run([require_tool("promtool"), "check", "config", config], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("rules found") == 3


def test_prometheus_scrapes_the_service_and_tells_alertmanager() -> None:
    config = yaml.safe_load((DASHBOARDS / "prometheus" / "prometheus.yaml").read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert targets["offpolicy-monitor"] == ["service:8900"]
    assert SERVICES["service"]["environment"]["OFFPOLICY_TRUSTED_HOSTS"] == "service"
    assert config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["alertmanager:9093"]
    assert mounts("prometheus")["/etc/prometheus"] == "./dashboards/prometheus"
    assert mounts("alertmanager")["/etc/alertmanager"] == "./dashboards/alertmanager"


def test_grafana_finds_the_sources_and_the_dashboards() -> None:
    sources = {source["type"]: source for source in provisioned("datasources")["datasources"]}
    assert (sources["prometheus"]["uid"], sources["prometheus"]["url"]) == ("prometheus", "http://prometheus:9090")
    assert sources["alertmanager"]["url"] == "http://alertmanager:9093"
    path = provisioned("dashboards")["providers"][0]["options"]["path"]
    assert mounts("grafana")[path] == "./dashboards/grafana"
    assert mounts("grafana")["/etc/grafana/provisioning"] == "./dashboards/provisioning"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DASHBOARDS / "grafana" / home.removeprefix(f"{path}/")).is_file()

"""deploy/kubernetes: what its manifests say of each other, of the service and of the image.

`make deployment` checks them against the schemas of Kubernetes and of the Prometheus Operator.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from offpolicy_monitor._version import __version__
from offpolicy_monitor.server.http.hosts import is_trusted
from offpolicy_monitor.server.process import END_WITHIN
from offpolicy_monitor.settings import Settings

from scripts.prometheus import prometheus_rule
from scripts.prometheus.__main__ import EXAMPLE, KUBERNETES
from tests.fixtures.tools import require_tool

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: dict[str, dict[str, Any]] = {
    document["kind"]: document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.load_all((FOLDER / name).read_text(), LOADER)
}
SECRETS = {
    document["metadata"]["name"]: document
    for document in yaml.safe_load_all((FOLDER / "secret.example.yaml").read_text())
}
POD: dict[str, Any] = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
CONTAINERS: list[dict[str, Any]] = [*POD["initContainers"], *POD["containers"]]
SERVICE: dict[str, Any] = POD["containers"][0]
ENVIRONMENT: dict[str, Any] = {entry["name"]: entry for entry in SERVICE["env"]}


def test_every_file_is_applied_but_the_example_of_secrets() -> None:
    apart = {"kustomization.yaml", "secret.example.yaml"}
    assert {path.name for path in FOLDER.iterdir()} - apart == set(KUSTOMIZATION["resources"])


def test_everything_has_the_one_name_by_which_it_is_found() -> None:
    assert {document["metadata"]["name"] for document in MANIFESTS.values()} == {"offpolicy-monitor"}
    label = {"app.kubernetes.io/name": "offpolicy-monitor"}
    chosen: dict[str, Callable[[Any], Any]] = {
        "Deployment": lambda spec: spec["selector"]["matchLabels"],
        "Service": lambda spec: spec["selector"],
        "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "ServiceMonitor": lambda spec: spec["selector"]["matchLabels"],
    }
    assert {kind: read(MANIFESTS[kind]["spec"]) for kind, read in chosen.items()} == dict.fromkeys(chosen, label)
    assert MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"] == label
    # The ServiceMonitor looks for a label of the Service, which the kustomization puts there.
    assert KUSTOMIZATION["labels"][0]["pairs"].items() >= label.items()


def test_the_rules_are_those_of_the_rule_files() -> None:
    assert KUBERNETES.read_text() == prometheus_rule(EXAMPLE)
    files = (ROOT / "dashboards" / "prometheus").glob("*.rules.yaml")
    groups = [group for file in files for group in yaml.load(file.read_text(), LOADER)["groups"]]
    local = yaml.dump(MANIFESTS["PrometheusRule"]["spec"]["groups"]).replace(EXAMPLE, "http://127.0.0.1:8900")
    ours = yaml.load(local, LOADER)
    assert sorted(ours, key=lambda group: group["name"]) == sorted(groups, key=lambda group: group["name"])


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(MANIFESTS["PrometheusRule"]["spec"]))
    checked = subprocess.run([require_tool("promtool"), "check", "rules", tmp_path / "rules.yaml"], capture_output=True)
    assert (checked.returncode, b"SUCCESS" in checked.stdout) == (0, True)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_a_container_is_nobody_in_particular_writes_in_volumes_alone_and_is_bounded(container: dict[str, Any]) -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert f"USER {POD['securityContext']['runAsUser']}\n" in (ROOT / "Dockerfile").read_text()
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"state": "/var/lib/offpolicy-monitor", "tmp": "/tmp"}
    assert set(mounted) == {volume["name"] for volume in POD["volumes"]}
    assert {"cpu", "memory"} <= set(container["resources"]["requests"]) and "memory" in container["resources"]["limits"]


def test_no_container_may_ask_kubernetes_for_anything() -> None:
    assert POD["automountServiceAccountToken"] is MANIFESTS["ServiceAccount"]["automountServiceAccountToken"] is False
    assert POD["serviceAccountName"] == MANIFESTS["ServiceAccount"]["metadata"]["name"]


def test_every_container_runs_the_image_that_the_kustomization_names() -> None:
    assert {container["image"] for container in CONTAINERS} == {"offpolicy-monitor"}
    tags = [(image["name"], image["newTag"]) for image in KUSTOMIZATION["images"]]
    assert tags == [("offpolicy-monitor", __version__)]


def test_the_schema_is_upgraded_before_each_start_and_by_no_older_version_beside_a_newer() -> None:
    schema = POD["initContainers"][0]
    assert schema["command"] == ["offpolicy-monitor", "db", "upgrade"]
    assert schema["env"] == [ENVIRONMENT["OFFPOLICY_DATABASE_URL"]]
    assert MANIFESTS["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_the_probes_ask_what_the_service_answers_on_its_port() -> None:
    asked = {name: SERVICE[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: get["path"] for name, get in asked.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {get["port"] for get in asked.values()} == {"http"}
    assert SERVICE["ports"] == [{"name": "http", "containerPort": 8900}]
    assert "OFFPOLICY_PORT=8900" in (ROOT / "Dockerfile").read_text()


def test_a_pod_that_ends_has_the_time_that_the_service_takes() -> None:
    waits = int(SERVICE["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] > waits + END_WITHIN


def test_the_environment_names_settings_that_exist_and_lets_nobody_in_without_a_token() -> None:
    settings = {name for name in ENVIRONMENT if name.startswith("OFFPOLICY_")}
    assert settings <= {Settings.variable(name) for name in Settings.model_fields}
    assert ENVIRONMENT["OFFPOLICY_AUTH"]["value"] == "required"
    assert "OFFPOLICY_OPEN_METRICS" not in ENVIRONMENT


def test_the_service_answers_under_the_names_by_which_it_is_asked() -> None:
    value = ENVIRONMENT["OFFPOLICY_TRUSTED_HOSTS"]["value"]
    hosts = value.replace("$(POD_IP)", "10.1.2.3").replace("$(POD_NAMESPACE)", "rl").split(",")
    names = ("10.1.2.3", "offpolicy-monitor", "offpolicy-monitor.rl.svc", "offpolicy-monitor.rl.svc.cluster.local")
    assert [name for name in names if not is_trusted(name, hosts)] == []
    assert not is_trusted("evil.example", hosts)
    assert {"POD_IP", "POD_NAMESPACE"} < set(ENVIRONMENT)
    assert MANIFESTS["Ingress"]["spec"]["rules"][0]["host"] == ENVIRONMENT["OFFPOLICY_PUBLIC_URL"]["value"][8:]


def test_prometheus_scrapes_with_a_token_by_the_port_of_the_service() -> None:
    endpoint = MANIFESTS["ServiceMonitor"]["spec"]["endpoints"][0]
    assert endpoint["port"] == MANIFESTS["Service"]["spec"]["ports"][0]["name"] == "http"
    assert MANIFESTS["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    credentials = endpoint["authorization"]["credentials"]
    assert list(SECRETS[credentials["name"]]["stringData"]) == [credentials["key"]]


def test_the_example_of_secrets_has_what_is_asked_for_and_holds_no_secret() -> None:
    asked = ENVIRONMENT["OFFPOLICY_DATABASE_URL"]["valueFrom"]["secretKeyRef"]
    assert list(SECRETS[asked["name"]]["stringData"]) == [asked["key"]]
    assert ":PASSWORD@" in SECRETS[asked["name"]]["stringData"][asked["key"]]
    assert SECRETS["offpolicy-monitor-prometheus"]["stringData"]["token"] == "opm_ID_SECRET"


def test_the_network_lets_in_whoever_is_named_and_lets_out_what_is_needed() -> None:
    spec = MANIFESTS["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in spec["ingress"]] == [[{"protocol": "TCP", "port": "http"}]]
    assert all("namespaceSelector" in place for place in spec["ingress"][0]["from"])
    assert [port["port"] for rule in spec["egress"] for port in rule["ports"]] == [53, 53, 5432, 9093]

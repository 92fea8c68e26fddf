"""deploy/ray/serve.yaml as docs/ray.md says, on a real Ray: `serve run`, `serve deploy` and again after a change.

Under load replicas are added and taken away, replaced, and share a GPU; nothing acknowledged is lost or doubled.

The GPU is one in Ray's count alone: the replicas see none, and measure on the processor.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from offpolicy_monitor.rayserve.options import prepare

from tests.chaos.load import Load
from tests.chaos.scenario import POSTGRES, Scenario
from tests.chaos.scenarios.ray import REPLACED_WITHIN, needs_ray
from tests.chaos.stage import Stage
from tests.fixtures.rays import READY_WITHIN, ray_environment, replicas
from tests.fixtures.service import clean_environment, free_port, started, wait_until_ready

FILE: Final = Path(__file__).resolve().parents[3] / "deploy" / "ray" / "serve.yaml"
PROGRAMS: Final = Path(sys.executable).parent
#: Ray looks and decides quickly: by the file it takes minutes, as it should where a start takes half of one.
QUICK: Final = {"upscale_delay_s": 1, "downscale_delay_s": 5, "metrics_interval_s": 1, "look_back_period_s": 4}
FEWEST, MOST, TARGET = 1, 3, 2
#: Clients, and the pause of each: with as many posts under way as the most replicas are to have, and with hardly any.
MANY: Final = (12, 0.0)
FEW: Final = (3, 0.5)
#: In which replicas are added, or taken away with 25 seconds for what each has under way, seconds.
SCALED_WITHIN: Final = 180.0
#: Seconds for which a replica that does not fit is waited for in vain.
IN_VAIN: Final = 20.0
HALF: Final = 0.5
#: Seconds that a command of Ray's may take; some ten alone.
CALLED_WITHIN: Final = 240.0


class Deployed:
    """The file with changes, for a stage; each command is given what docs/ray.md asks of a node's environment."""

    def __init__(self, stage: Stage, **environment: str) -> None:
        needs_ray()
        # A short path: those of Ray's sockets have at most 107 characters.
        folder = TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        self._stage, self._folder = stage, Path(stage.stack.enter_context(folder))
        self.variables = ray_environment(self._folder, stage.url) | environment
        prepare(self.variables, self._folder, sys.platform == "linux")

    def file(self, scaled: Mapping[str, Any], **changes: Any) -> str:
        """Where it is; of the replicas `scaled` and `changes` are not as in the repository."""
        described = yaml.safe_load(FILE.read_text())
        described["http_options"]["port"] = self._stage.port
        [deployment] = described["applications"][0]["deployments"]
        deployment["autoscaling_config"] |= scaled
        deployment["ray_actor_options"] |= changes
        path = self._folder / "serve.yaml"
        path.write_text(yaml.safe_dump(described))
        return str(path)

    def run(self, *scaled: Any, **changes: Any) -> None:
        """`serve run`, which starts a Ray of its own; return when it is ready."""
        self._begin(["serve", "run", self.file(*scaled, **changes)])
        wait_until_ready(self.url, self._process, within=READY_WITHIN)

    def start(self, gpus: int = 0) -> None:
        """`ray start`, with so many GPUs that are none, on ports that nobody else has."""
        ports = (
            "port",
            "dashboard-port",
            "dashboard-agent-listen-port",
            "dashboard-agent-grpc-port",
            "metrics-export-port",
        )
        chosen = {port: free_port() for port in ports}
        self.variables["RAY_DASHBOARD_ADDRESS"] = f"http://127.0.0.1:{chosen['dashboard-port']}"
        counts = {"num-cpus": 4, "num-gpus": gpus, "object-store-memory": 80 << 20, "node-ip-address": "127.0.0.1"}
        options = [f"--{name}={value}" for name, value in (chosen | counts).items()]
        self._begin(["ray", "start", "--head", "--block", *options])

    def deploy(self, *scaled: Any, **changes: Any) -> None:
        """`serve deploy`; the first one waits for the Ray that it is for, and until it is ready."""
        first, path = not replicas(self._stage.url), self.file(*scaled, **changes)
        deployed = lambda: self._called("deploy", path).returncode == 0  # noqa: E731
        self._stage.wait_for(deployed, READY_WITHIN, "serve deploy failed")
        if first:
            wait_until_ready(self.url, self._process, within=READY_WITHIN)

    def state(self) -> dict[str, int]:
        """How many replicas are in each state, by `serve status`."""
        said = yaml.safe_load(self._called("status").stdout)
        found: dict[str, int] = said["applications"]["offpolicy-monitor"]["deployments"]["Monitor"]["replica_states"]
        return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._stage.port}"

    @property
    def _process(self) -> Any:
        return self._stage.process

    def _begin(self, command: Sequence[str]) -> None:
        with self._stage.log.open("ab") as lines:
            self._stage.process = started([str(PROGRAMS / command[0]), *command[1:]], lines, self.variables)

    def _called(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(PROGRAMS / "serve"), *arguments]
        variables = clean_environment() | self.variables
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=CALLED_WITHIN, check=False
        )


def there(stage: Stage, number: int, within: float = SCALED_WITHIN) -> None:
    """Return when there are so many replicas."""
    found = lambda: len(replicas(stage.url)) == number  # noqa: E731
    stage.wait_for(found, within, f"there were not {number} replicas within {within:g} s")
    stage.most("replicas", number)


def scaled(stage: Stage) -> None:
    """`serve run`: with much under way replicas are added up to the most, with little they go again."""
    deployed = Deployed(stage)
    bounds = {"min_replicas": FEWEST, "max_replicas": MOST, "target_ongoing_requests": TARGET}
    deployed.run(QUICK | bounds, num_cpus=0.1)
    for number in stage.trials():
        there(stage, FEWEST)
        with Load(stage.port, stage.ledger, f"many-{number}", *MANY).running():
            there(stage, MOST)
        with Load(stage.port, stage.ledger, f"few-{number}", *FEW).running():
            there(stage, FEWEST)
            with stage.recovering():
                pass
    stage.answered({200})


def replaced(stage: Stage) -> None:
    """`serve deploy` after a change: every replica is replaced under load."""
    deployed = Deployed(stage)
    deployed.start()
    deployed.deploy({})
    there(stage, 2)
    with stage.load():
        for number in stage.trials():
            before = set(replicas(stage.url))
            deployed.deploy({}, num_cpus=1 - (number + 1) / 100)
            gone = lambda: not before & set(replicas(stage.url))  # noqa: B023, E731
            stage.wait_for(gone, SCALED_WITHIN, "a replica was not replaced")
            there(stage, 2, REPLACED_WITHIN)
            with stage.recovering():
                pass
    stage.answered({200})


def shared(stage: Stage) -> None:
    """Two replicas have half a GPU each; a third one does not fit, and is waited for while the two go on."""
    deployed = Deployed(stage, OFFPOLICY_DEVICE="auto")
    deployed.start(gpus=1)
    deployed.deploy({"min_replicas": 2, "max_replicas": 2}, num_gpus=HALF)
    there(stage, 2)
    on_processors = lambda: devices(deployed.url) == ["cpu", "cpu"]  # noqa: E731
    stage.wait_for(on_processors, REPLACED_WITHIN, f"they measure on {devices(deployed.url)}")
    with stage.load():
        for _ in stage.trials():
            deployed.deploy({"min_replicas": 3, "max_replicas": 3}, num_gpus=HALF)
            waits = lambda: deployed.state().get("STARTING", 0) == 1  # noqa: E731
            stage.wait_for(waits, REPLACED_WITHIN, f"no third one is waited for: {deployed.state()}")
            acknowledged = len(stage.ledger.acknowledged)
            stage.acknowledged_meanwhile(1 << 30, IN_VAIN)
            stage.promise(deployed.state() == {"RUNNING": 2, "STARTING": 1}, f"replicas are {deployed.state()}")
            stage.promise(len(stage.ledger.acknowledged) > acknowledged, "the two did not go on")
            deployed.deploy({"min_replicas": 2, "max_replicas": 2}, num_gpus=HALF)
            waits_no_more = lambda: deployed.state() == {"RUNNING": 2}  # noqa: E731
            stage.wait_for(waits_no_more, REPLACED_WITHIN, f"a third one is waited for: {deployed.state()}")
            with stage.recovering():
                pass
    stage.answered({200})


def devices(url: str) -> list[str]:
    """On what each replica measures, by what it shows at /metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    found = [json.loads(line.partition("device=")[2].partition("}")[0]) for line in lines if "_device_info{" in line]
    return sorted(found)


SCENARIOS = (
    Scenario("replicas added and taken away, Ray", scaled, (POSTGRES,), full=2, quick=0, limit=1200, alone=True),
    Scenario("all replicas replaced, Ray", replaced, (POSTGRES,), full=2, quick=0, limit=1200, alone=True),
    Scenario("a GPU that is shared, Ray", shared, (POSTGRES,), full=1, quick=0, limit=1200, alone=True),
)

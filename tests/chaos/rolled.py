"""python -m tests.chaos.rolled NUM_CPUS: all replicas of the cluster of this environment are replaced, one by one.

What is changed is how many processors Ray counts for each, as after a change of deploy/ray/serve.yaml.
"""

import os
import sys
from pathlib import Path

from offpolicy_monitor.rayserve.options import prepare


def main(num_cpus: float) -> None:
    """Return when the new ones are there."""
    prepare(os.environ, Path(os.environ["RAY_TMPDIR"]), sys.platform == "linux")
    import ray
    from offpolicy_monitor.rayserve import application
    from ray import serve

    ray.init(address="auto", log_to_driver=False)
    args = {"host": application.LOOPBACK, "num_cpus": num_cpus}
    serve.run(application.monitor(args), name=application.NAME, route_prefix=application.ROUTE)


if __name__ == "__main__":
    main(float(sys.argv[1]))

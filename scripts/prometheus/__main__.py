"""Write dashboards/prometheus/*.rules.yaml and the same rules for Kubernetes: `make docs`.

A test fails when they differ from what is checked in.
"""

from pathlib import Path
from typing import Final

from offpolicy_monitor.addresses import LOCAL

from scripts.prometheus import prometheus_rule, rule_files

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "dashboards" / "prometheus"
KUBERNETES: Final = ROOT / "deploy" / "kubernetes" / "prometheusrule.yaml"
#: Where people reach the service in deploy/.
EXAMPLE: Final = "https://monitor.example"


def main() -> None:
    """Write the files, with links to where the service is unless the operator says otherwise."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = rule_files(LOCAL)
    for path, text in {
        **{FOLDER / name: text for name, text in files.items()},
        KUBERNETES: prometheus_rule(EXAMPLE),
    }.items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

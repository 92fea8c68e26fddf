"""Write dashboards/prometheus/*.rules.yaml: `make docs`. A test fails when they differ from what is checked in."""

from pathlib import Path

from offpolicy_monitor.addresses import LOCAL

from scripts.prometheus import rule_files

FOLDER = Path(__file__).resolve().parents[2] / "dashboards" / "prometheus"


def main() -> None:
    """Write the files, with links to where the service is unless the operator says otherwise."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in rule_files(LOCAL).items():
        (FOLDER / name).write_text(text)
        print(f"wrote dashboards/prometheus/{name}")


if __name__ == "__main__":
    main()

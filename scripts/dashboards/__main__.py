"""Write dashboards/grafana/*.json from the boards (`make dashboards`)."""

from pathlib import Path

from scripts.dashboards.fleet import FLEET
from scripts.dashboards.frame import render
from scripts.dashboards.ingest import INGEST
from scripts.dashboards.masks import MASKS
from scripts.dashboards.run import ONE_RUN

FOLDER = Path(__file__).resolve().parents[2] / "dashboards" / "grafana"
BOARDS = (FLEET, ONE_RUN, MASKS, INGEST)


def files() -> dict[Path, str]:
    """Each file with what it must hold."""
    return {FOLDER / f"{board.uid}.json": render(board) for board in BOARDS}


def main() -> None:
    """Write them, and remove those of boards that are no more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for path, content in wanted.items():
        path.write_text(content)
    for path in set(FOLDER.glob("*.json")) - set(wanted):
        path.unlink()


if __name__ == "__main__":
    main()

"""What older releases left behind: a folder each, written once by `record.py` and never again."""

import json
import lzma
import math
import tarfile
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
TRAINER: Final = FOLDER / "trainer.py"
DATABASE: Final = "database.db.xz"
ANSWERS: Final = "answers.json.xz"
CLIENT: Final = "client.tar.xz"
#: The release whose database has revision 0003 and whose reduced shards have stored version 2.
F832F41: Final = FOLDER / "f832f41"


def unpack_database(release: Path, file: Path) -> None:
    """Its SQLite database, as it was."""
    file.write_bytes(lzma.decompress((release / DATABASE).read_bytes()))


def unpack_client(release: Path, folder: Path) -> None:
    """Its client, importable with `folder` on the path."""
    with tarfile.open(release / CLIENT) as archive:
        # Python has filters since 3.11.4, and uses none before 3.14 unless it is told; the older ones warn of nothing.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)


def answers(release: Path) -> dict[str, Any]:
    """What its service answered, by path and query."""
    found: dict[str, Any] = json.loads(lzma.decompress((release / ANSWERS).read_bytes()))
    return found


def assert_kept(got: Any, kept: Any, path: str, relative: float = 1e-9, absolute: float = 1e-12) -> None:
    """Everything that was answered is answered still, and perhaps more; times and a rule's words are not compared."""
    if isinstance(kept, dict):
        for name, value in kept.items():
            assert name in got, f"{path} {name}"
            if not name.endswith("_at") and name != "expression":
                assert_kept(got[name], value, f"{path} {name}", relative, absolute)
    elif isinstance(kept, list):
        assert len(got) == len(kept), path
        for index, (value, before) in enumerate(zip(got, kept, strict=True)):
            assert_kept(value, before, f"{path} {index}", relative, absolute)
    elif isinstance(kept, float):
        assert got is not None and math.isclose(got, kept, rel_tol=relative, abs_tol=absolute), (path, got, kept)
    else:
        assert got == kept, (path, got, kept)

"""The systemd unit, as systemd itself reads it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
UNIT: Final = ROOT / "deploy" / "systemd" / "offpolicy-monitor.service"
PROGRAM: Final = "/opt/offpolicy-monitor/bin/offpolicy-monitor"
#: Of 10, by `systemd-analyze security`; below 2 is what it calls "OK".
MOST_EXPOSED: Final = 1.5


def check(folder: Path) -> None:
    """Ends where it is not accepted or too much is exposed; says so where there is no systemd."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        print("systemd-analyze is not installed: the unit is not checked")
        return
    program, unit = folder / "offpolicy-monitor", folder / UNIT.name
    program.touch(mode=0o755)
    # The program is not installed here.
    unit.write_text(UNIT.read_text().replace(PROGRAM, str(program)))
    verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    # A line that is not known is told, and no failure.
    if verified.returncode or UNIT.name in verified.stderr:
        sys.exit(verified.stderr)
    print("systemd: the unit is accepted")
    judged = subprocess.run([analyze, "security", "--offline=true", UNIT], capture_output=True, text=True, check=True)
    exposed = re.search(r"exposure level for .*: (\d+\.\d+)", judged.stdout)
    if exposed is None or float(exposed[1]) > MOST_EXPOSED:
        sys.exit(f"{judged.stdout}\nmore is exposed than {MOST_EXPOSED}")
    print(f"systemd: exposed by {exposed[1]} of 10")

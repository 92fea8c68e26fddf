"""`python -m offpolicy_monitor.cli`: the same command where it is not on the path."""

import sys

from offpolicy_monitor.cli import main

if __name__ == "__main__":
    sys.exit(main())

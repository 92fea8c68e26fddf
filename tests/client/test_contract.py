"""The client's own table of arrays says what the service's schema says, and importing the client costs little."""

import subprocess
import sys

from offpolicy_monitor.client.contract import ARRAYS
from offpolicy_monitor.wire import arrays

LETTERS = {"float": "f", "bfloat": "f", "int": "i", "uint": "u", "bool": "b"}


def test_every_array_of_the_schema_is_known_with_its_kinds_and_its_rank() -> None:
    assert ARRAYS.keys() == arrays.ARRAYS.keys()
    for name, row in arrays.ARRAYS.items():
        kinds = {LETTERS[dtype.rstrip("0123456789")] for dtype in arrays.DTYPES[row.kind]}
        assert (set(ARRAYS[name].kinds), ARRAYS[name].per, ARRAYS[name].inner_rank) == (kinds, row.per, row.inner_rank)


def test_importing_the_monitor_beside_numpy_takes_under_a_tenth_of_a_second_and_nothing_heavy() -> None:
    code = (
        "import numpy, sys, time; t = time.process_time(); from offpolicy_monitor import Monitor;"
        "print(time.process_time() - t, sorted({'torch', 'pydantic', 'fastapi', 'sqlalchemy', 'requests', 'pandas'} &"
        " set(sys.modules)))"
    )
    printed = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(5)]
    assert {line.split(maxsplit=1)[1] for line in printed} == {"[]\n"}
    assert min(float(line.split()[0]) for line in printed) < 0.1

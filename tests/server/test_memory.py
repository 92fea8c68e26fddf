"""What the service tells malloc: pages nobody uses go back to the system, and threads share heaps."""

import subprocess
import sys
from pathlib import Path

from offpolicy_monitor.server.memory import HEAPS

FRAGMENTED = """
from offpolicy_monitor.server.memory import Idle, set_up_malloc, resident
set_up_malloc()
idle = Idle()
blocks = [bytearray(200_000) for _ in range(1000)]
kept = blocks[::20]
del blocks
before = resident()
print(idle.give_back(), before - resident())
"""


def test_pages_that_a_peak_has_left_go_back_to_the_system() -> None:
    printed = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True).stdout
    assert all(int(size) > 100 << 20 for size in printed.split())


HEAPS_OF_THREADS = """
import ctypes, sys, threading
from offpolicy_monitor.server.memory import set_up_malloc
set_up_malloc()
together = threading.Barrier(12)


def allocate():
    together.wait()
    kept = [bytearray(10_000) for _ in range(100)]
    together.wait()


threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
told = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, told)
libc.fclose(told)
"""


def test_threads_share_few_heaps(tmp_path: Path) -> None:
    told = tmp_path / "heaps.xml"
    subprocess.run([sys.executable, "-c", HEAPS_OF_THREADS, str(told)], check=True)
    assert told.read_text().count("<heap nr=") == HEAPS

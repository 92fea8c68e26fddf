"""Of threads that wait, the last one to come goes first; every job is taken once, and at the end all go home."""

import threading
import time
from collections import Counter
from collections.abc import Callable

from offpolicy_monitor.pipeline.thread_stack import ThreadStack

WITHIN = 10.0


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Crew:
    """Threads that take jobs of one stack, by their numbers; `taken` is who took each."""

    def __init__(self, stack: ThreadStack) -> None:
        self._stack = stack
        self.taken = list[int]()
        self.threads = list[threading.Thread]()

    def join(self) -> None:
        """One more, which waits when this returns."""
        number, waiting = len(self.threads), len(self._stack._threads)
        self.threads.append(threading.Thread(target=self._work, args=(number,), daemon=True))
        self.threads[-1].start()
        until(lambda: len(self._stack._threads) == waiting + 1)

    def _work(self, number: int) -> None:
        while self._stack.next_came():
            self.taken.append(number)


def test_one_after_the_other_all_jobs_are_of_the_thread_that_came_last() -> None:
    stack = ThreadStack()
    crew = Crew(stack)
    for _ in range(3):
        crew.join()
    for number in range(20):
        stack.came()
        until(lambda number=number: len(crew.taken) == number + 1 and len(stack._threads) == 3)
    assert set(crew.taken) == {2}
    stack.end()


def test_jobs_that_nobody_waits_for_are_counted_until_they_are_taken_and_come_before_the_end() -> None:
    stack = ThreadStack()
    stack.came()
    stack.came()
    assert stack.untaken == 2
    stack.end()
    assert [stack.next_came() for _ in range(4)] == [True, True, False, False]
    assert stack.untaken == 0


def test_every_job_is_taken_once_and_the_end_lets_all_go() -> None:
    stack, jobs = ThreadStack(), 5_000
    crew = Crew(stack)
    for _ in range(4):
        crew.join()

    def post() -> None:
        for _ in range(jobs // 4):
            stack.came()

    posting = [threading.Thread(target=post) for _ in range(4)]
    for thread in posting:
        thread.start()
    for thread in posting:
        thread.join(WITHIN)
    stack.end()
    for thread in crew.threads:
        thread.join(WITHIN)
        assert not thread.is_alive()
    assert Counter(crew.taken).total() == jobs

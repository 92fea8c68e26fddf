"""A child that is forked while a thread of its parent reads an answer leaves that connection, and waits for nothing."""

import os
import socket
import threading
import time

from offpolicy_monitor.client.connection import Connection


def test_a_fork_in_the_middle_of_an_answer_holds_no_child_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(f"http://127.0.0.1:{server.getsockname()[1]}", 30.0, None)
        answers: list[int] = []
        reads = threading.Thread(target=lambda: answers.append(connection.exchange("GET", "/").status))
        reads.start()
        peer, _ = server.accept()
        with peer:
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
            time.sleep(0.3)  # the thread waits for the rest by now, and holds the lock of its reader
            child = os.fork()
            if not child:
                connection.leave_to_parent()
                os._exit(7)
            ends = time.monotonic() + 10
            while not (found := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < ends:
                time.sleep(0.01)
            if not found[0]:
                os.kill(child, 9)
                os.waitpid(child, 0)
            peer.sendall(b"}")
            reads.join(10)
    assert os.waitstatus_to_exitcode(found[1]) == 7 and found[0] == child
    assert answers == [200]
    connection.close()

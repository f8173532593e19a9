"""What a transport has read stays as it is until the next read of its own thread."""

import socket
import threading

from sepp.rpc.transport import Transport


def received(data: bytes) -> memoryview | bytes:
    """Return what a new transport reads of `data`."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(data)
    theirs.close()
    transport = Transport(ours)
    try:
        return transport.receive()
    finally:
        transport.close()


def test_another_thread_reads_into_another_buffer() -> None:
    ours = received(b"ours")

    thread = threading.Thread(target=received, args=(b"theirs",))
    thread.start()
    thread.join()

    assert bytes(ours) == b"ours"

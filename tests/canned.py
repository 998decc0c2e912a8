"""A server that gives one answer to whoever asks, right or wrong, and notes what was asked."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tutorial_server.sse import DONE, sse_event

END = {"finish_reason": "length", "timing": {}, "token_count": 3, "prompt_tokens": 7}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def text(piece: str) -> bytes:
    return sse_event({"text": piece}).encode()


def end() -> bytes:
    return sse_event(END).encode() + DONE.encode()


@contextmanager
def canned(
    answer: Sequence[bytes | float], ready: bytes = b"HTTP/1.1 404 Not Found\r\n\r\n"
) -> Iterator[tuple[str, list[bytes]]]:
    """Serve `answer` to POST and `ready` to GET: bytes are sent, numbers are seconds to wait."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def reply(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            request = _read_request(connection)
            asked.append(request)
            for part in [ready] if request.startswith(b"GET ") else answer:
                if isinstance(part, bytes):
                    connection.sendall(part)
                else:
                    time.sleep(part)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_quietly, args=(reply, connection), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line[15:] for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"]
    length = int(lengths[0]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _quietly(reply: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client has gone, as some do
        reply(connection)

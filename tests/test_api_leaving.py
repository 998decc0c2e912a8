"""Clients that go without a word: the work for them stops, and the line goes on."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from server import GatedRunner, Server, gated, joined, leave, request_bytes, wait_until
from tiny import tiny_llama

from tutorial_server.decoding import generate_cached

ROUTES = ("/generate", "/stream")
WAYS = ("FIN", "RST")
MORE_PASSES = 2  # that a client who has left may still cost

each_way = pytest.mark.parametrize("how", WAYS)
each_route = pytest.mark.parametrize("path", ROUTES)


@pytest.fixture
def running() -> Iterator[tuple[Server, GatedRunner]]:
    endless = replace(tiny_llama(), stop_ids=frozenset())
    with gated(endless) as pair:
        yield pair


def assert_goes_on(server: Server) -> None:
    assert server.generate(token_limit=3)["text"] == generate_cached(tiny_llama(), "hello", 3).text
    server.wait_line(waiting=0, running=0)


@each_route
@each_way
def test_leaving_in_prefill(running: tuple[Server, GatedRunner], path: str, how: str) -> None:
    server, runner = running
    client = server.open_stream(path, token_limit=100)
    runner.wait_begun(1)
    leave(client, how)
    server.wait_connections(0)
    runner.open()
    server.wait_line(waiting=0, running=0)
    assert runner.passes <= 1 + MORE_PASSES
    assert runner.sequences[0].cancelled
    assert runner.sequences[0].cache is None
    assert_goes_on(server)


@each_route
@each_way
def test_leaving_in_decode(running: tuple[Server, GatedRunner], path: str, how: str) -> None:
    server, runner = running
    client = server.open_stream(path, token_limit=100)
    runner.allow(5)
    runner.wait_begun(6)
    leave(client, how)
    server.wait_connections(0)
    runner.open()
    server.wait_line(waiting=0, running=0)
    assert 5 <= runner.passes <= 6 + MORE_PASSES
    assert runner.sequences[0].cache is None
    assert_goes_on(server)


@each_route
@each_way
def test_leaving_while_waiting(running: tuple[Server, GatedRunner], path: str, how: str) -> None:
    server, runner = running
    first = server.open_stream("/generate", prompt="a", token_limit=2)
    server.wait_line(waiting=0, running=1)
    leaver = server.open_stream(path, prompt="aa", token_limit=100)
    server.wait_line(waiting=1, running=1)
    last = server.open_stream("/generate", prompt="aaa", token_limit=2)
    server.wait_line(waiting=2, running=1)
    leave(leaver, how)
    server.wait_connections(2)
    runner.open()
    server.wait_line(waiting=0, running=0)
    first.close()
    last.close()
    bare = len(runner.sequences[0].prompt_ids)
    assert [len(sequence.prompt_ids) for sequence in runner.sequences] == [bare, bare + 2]
    assert runner.passes == 4, "none was spent on who had left"


@each_route
def test_leaving_in_a_steady_decode_costs_little(
    running: tuple[Server, GatedRunner], path: str
) -> None:
    """Nothing is held up here: passes go on at their own pace while the client goes."""
    server, runner = running
    client = server.open_stream(path, token_limit=300)
    runner.pace = 0.02
    runner.open()
    runner.wait_begun(5)
    leave(client, "RST")
    begun = runner.begun
    server.wait_line(waiting=0, running=0)
    assert runner.begun <= begun + MORE_PASSES
    assert_goes_on(server)


@each_way
def test_all_leave_at_once(running: tuple[Server, GatedRunner], how: str) -> None:
    server, runner = running
    clients = []
    for number in range(6):
        clients.append(server.open_stream(ROUTES[number % 2], token_limit=50))
        server.wait_line(waiting=number, running=1)
    runner.allow(1)
    for client in clients:
        leave(client, how)
    server.wait_connections(0)
    runner.open()
    server.wait_line(waiting=0, running=0)
    assert len(runner.sequences) == 1
    assert runner.passes <= 2 + MORE_PASSES
    assert_goes_on(server)


@each_route
def test_leaving_before_the_prompt_is_encoded(
    running: tuple[Server, GatedRunner], path: str
) -> None:
    server, runner = running
    for _ in range(5):
        leave(server.open_stream(path, token_limit=100), "RST")
    server.wait_connections(0)
    runner.open()
    server.wait_line(waiting=0, running=0)
    assert runner.passes <= 5 * MORE_PASSES
    assert_goes_on(server)


@each_route
@each_way
def test_leaving_writes_no_traceback(
    running: tuple[Server, GatedRunner], path: str, how: str, caplog: Any
) -> None:
    caplog.set_level(logging.INFO)
    server, runner = running
    client = server.open_stream(path, token_limit=100)
    runner.allow(3)
    runner.wait_begun(4)
    leave(client, how)
    server.wait_connections(0)
    runner.open()
    server.wait_line(waiting=0, running=0)
    assert_goes_on(server)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert " 500" not in caplog.text


def test_who_reads_slowly_is_not_taken_for_gone(running: tuple[Server, GatedRunner]) -> None:
    server, runner = running
    runner.open()
    with server.open_stream(token_limit=60) as client:
        server.wait_line(waiting=0, running=1)
        wait_until(lambda: runner.passes == 60, "all passes")
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            time.sleep(0.002)
            received += client.recv(50)
    assert b"data: [DONE]" in received


def test_a_finished_answer_is_not_cancelled_by_leaving(
    running: tuple[Server, GatedRunner],
) -> None:
    server, runner = running
    runner.open()
    with server.connect() as client:
        client.sendall(request_bytes("POST", "/generate", {"prompt": "hello", "token_limit": 2}))
        assert client.recv(10_000).startswith(b"HTTP/1.1 200")
    server.wait_connections(0)
    (sequence,) = runner.sequences
    assert (sequence.cancelled, sequence.finish_reason) == (False, "length")
    assert joined(server.stream(token_limit=2)) == sequence.completion().text

"""Encoding beside the event loop: long texts hold nobody up, and nobody waits in vain."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opened import endless, slot_runner
from server import read_reply, request_bytes, wait_until
from test_shutdown import begin_to_leave, leaving
from tiny import tiny_llama

from tutorial_server.chat import build_messages
from tutorial_server.encoders import LONG_TEXT
from tutorial_server.engine import Engine, Request
from tutorial_server.errors import NotReady
from tutorial_server.sequence import SamplingParams
from tutorial_server.steps import Steps

LONG = "a" * (LONG_TEXT + 1)


class Gate:
    """A `render_chat` that takes its time with what is not a short hello."""

    def __init__(self) -> None:
        self.begun = 0
        self.opened = threading.Event()

    def render(self, messages: Any, add_generation_prompt: bool = True) -> str:
        if messages[-1]["content"] not in ("hello", "Hi"):
            self.begun += 1
            self.opened.wait(20)
        return "hello"


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.opened.set()


def ready_engine(gate: Gate) -> Engine:
    llm = endless(tiny_llama())
    engine = Engine(lambda: slot_runner(llm, 2, 512), Steps(render_chat=gate.render))
    engine.start()
    wait_until(lambda: engine.state().status == "ready", "the model")
    return engine


def asked(prompt: str) -> Request:
    return Request(tuple(build_messages(prompt, "")), SamplingParams(3))


def test_a_short_question_does_not_wait_for_a_long_text(gate: Gate) -> None:
    engine = ready_engine(gate)

    async def work() -> None:
        long = asyncio.create_task(engine.submit(asked(LONG)))
        await asyncio.to_thread(wait_until, lambda: gate.begun == 1, "the long text")
        short = await asyncio.wait_for(engine.submit(asked("hello")), 5)
        wanted = (await short.finished()).token_ids
        assert not long.done()
        gate.opened.set()
        assert (await (await long).finished()).token_ids == wanted  # its tokenizer is a copy

    asyncio.run(work())
    engine.stop()


@pytest.mark.parametrize("prompt", ["slow", LONG])
def test_who_is_encoded_and_who_waits_for_it_hear_that_the_engine_stops(
    gate: Gate, prompt: str
) -> None:
    engine = ready_engine(gate)

    async def work() -> None:
        tasks = [asyncio.create_task(engine.submit(asked(prompt))) for _ in range(3)]
        await asyncio.to_thread(wait_until, lambda: gate.begun == 1, "the first text")
        engine.stop()
        done, pending = await asyncio.wait(tasks, timeout=5)
        assert not pending
        assert [type(task.exception()) for task in done] == [NotReady] * 3

    asyncio.run(work())


def test_a_client_that_cancels_while_it_is_encoded_is_not_told_of_a_stop(gate: Gate) -> None:
    engine = ready_engine(gate)

    async def work() -> None:
        task = asyncio.create_task(engine.submit(asked("slow")))
        await asyncio.to_thread(wait_until, lambda: gate.begun == 1, "the text")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.opened.set()
        assert len((await (await engine.submit(asked("hello"))).finished()).token_ids) == 3

    asyncio.run(work())
    engine.stop()


def test_leaving_while_prompts_are_encoded_tells_their_clients(gate: Gate, caplog: Any) -> None:
    with leaving(grace=0.2) as (server, runner, thread):
        server.engine.steps = Steps(render_chat=gate.render)
        runner.open()
        connections = [server.connect() for _ in range(3)]
        for connection in connections:
            body = {"prompt": "slow", "token_limit": 3}
            connection.sendall(request_bytes("POST", "/stream", body))
        wait_until(lambda: gate.begun == 1, "the first text")
        begin_to_leave(server)
        assert [read_reply(connection).status for connection in connections] == [503] * 3
        thread.join(5)
        assert not thread.is_alive()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]

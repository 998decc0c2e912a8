"""The whole way with the real small model: HTTP in, text out, and work that stops in time."""

import statistics
import time
from collections.abc import Iterator

import pytest
from server import Server, events, joined, leave, read_reply, serving, wait_until

from tutorial_server.decoding import generate_cached
from tutorial_server.models import LLM
from tutorial_server.runner import TransformersRunner

QUESTION = "What is the capital of France?"
MORE_PASSES = 2  # that a client who has left may still cost


@pytest.fixture(scope="module")
def server(small: LLM) -> Iterator[Server]:
    with serving(lambda: TransformersRunner(small)) as running:
        yield running


@pytest.fixture
def passes(small: LLM) -> Iterator[list[int]]:
    """The input length of each forward pass that has ended."""
    widths: list[int] = []

    def note(module: object, args: object, kwargs: dict, output: object) -> None:
        widths.append(kwargs["input_ids"].shape[1])

    hook = small.model.register_forward_hook(note, with_kwargs=True)
    yield widths
    hook.remove()


def test_a_question_is_answered(server: Server, small: LLM, passes: list[int]) -> None:
    answer = server.generate(QUESTION, token_limit=12)
    assert "Paris" in answer["text"]
    prompt, *others = passes
    assert prompt == answer["prompt_tokens"]
    assert others == [1] * (len(passes) - 1)
    assert len(passes) == answer["token_count"] + (answer["finish_reason"] == "stop")
    expected = generate_cached(small, QUESTION, 12)
    assert (answer["text"], answer["token_count"]) == (expected.text, len(expected.token_ids))
    assert joined(server.stream(QUESTION, token_limit=12)) == expected.text


def test_an_answer_ends_by_itself_and_holds_no_marker(server: Server) -> None:
    answer = server.generate(QUESTION, token_limit=64)
    assert answer["finish_reason"] == "stop"
    assert 0 < answer["token_count"] < 64
    assert "<|" not in answer["text"]


def test_a_seed_says_the_same_again(server: Server) -> None:
    fields = {"token_limit": 12, "temperature": 1.2, "top_k": 50, "top_p": 0.95}
    first = server.generate("Tell me a story.", seed=11, **fields)["text"]
    assert joined(server.stream("Tell me a story.", seed=11, **fields)) == first
    assert server.generate("Tell me a story.", seed=12, **fields)["text"] != first


@pytest.mark.parametrize("path", ["/generate", "/stream"])
def test_leaving_in_decode(server: Server, passes: list[int], path: str) -> None:
    client = server.open_stream(path, prompt="Count to a thousand.", token_limit=500)
    wait_until(lambda: len(passes) >= 4, "four passes")
    leave(client, "RST")
    gone = len(passes)
    server.wait_line(waiting=0, running=0)
    assert len(passes) <= gone + MORE_PASSES


@pytest.mark.parametrize("path", ["/generate", "/stream"])
def test_leaving_in_prefill(server: Server, passes: list[int], path: str) -> None:
    client = server.open_stream(path, prompt="word " * 300, token_limit=500)
    server.wait_line(waiting=0, running=1)
    leave(client, "FIN")
    gone = len(passes)
    assert gone == 0, "still in prefill"
    server.wait_line(waiting=0, running=0)
    assert len(passes) <= gone + MORE_PASSES


def test_health_answers_at_once_all_along(server: Server) -> None:
    times = []
    with server.open_stream(prompt="word " * 300, token_limit=8) as client:
        server.wait_line(waiting=0, running=1)
        while server.engine.state().running:
            start = time.perf_counter()
            assert server.ask("GET", "/health").status == 200
            times.append(time.perf_counter() - start)
            time.sleep(0.01)
        assert events(read_reply(client).body)[-1] == ("message", "[DONE]")
    assert len(times) > 10
    assert statistics.median(times) < 0.1

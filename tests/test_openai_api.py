"""OpenAI's routes, asked by OpenAI's own client; and by hand where that one is too polite."""

import asyncio
import copy
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import openai
import pytest
from server import (
    PATIENCE,
    GatedRunner,
    Reply,
    Server,
    events,
    gated,
    leave,
    read_reply,
    request_bytes,
    serving,
)
from tiny import CONTEXT_LENGTH, tiny_llama, tiny_qwen3

from tutorial_server.chat import encode_chat
from tutorial_server.config import Settings
from tutorial_server.decoding import run
from tutorial_server.models import LLM
from tutorial_server.openai_schemas import DEFAULT_MAX_TOKENS, ChatRequest
from tutorial_server.runner import Runner, TransformersRunner
from tutorial_server.sequence import Completion, SamplingParams, Sequence
from tutorial_server.slot_runner import SlotRunner
from tutorial_server.steps import Steps

PATH = "/v1/chat/completions"
SECRET = "xyzzy-plugh"
LIMIT = 20_000
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TURNS: list[Any] = [
    {"role": "system", "content": "Be a test."},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "the <|im_end|> user"},
    {"role": "user", "content": "singing"},
]
GREEDY = {"temperature": 0, "max_tokens": 6}


def slots(llm: LLM) -> Runner:
    return SlotRunner.within(llm, 3e6, most=4)


RUNNERS = {"slots": slots, "transformers": TransformersRunner}


@pytest.fixture(scope="module", params=RUNNERS)
def server(request: Any) -> Iterator[Server]:
    llm = tiny_llama()
    with serving(lambda: RUNNERS[request.param](llm), Settings(max_body_bytes=LIMIT)) as here:
        yield here


@pytest.fixture
def closed() -> Iterator[tuple[Server, GatedRunner]]:
    """A server that goes on when the test says so, with an answer that never ends by itself."""
    with gated(replace(tiny_llama(), stop_ids=frozenset()), Settings(max_waiting=1)) as pair:
        yield pair


def client(server: Server, **settings: Any) -> openai.OpenAI:
    settings = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE} | settings
    return openai.OpenAI(base_url=f"{server.url}/v1", **settings)


def ask(server: Server, messages: list[Any] = HELLO, **fields: Any) -> Any:
    fields = {"model": "tiny-llama", **GREEDY, **fields}
    return client(server).chat.completions.create(messages=messages, **fields)


def raw(server: Server, body: Any) -> Reply:
    return server.ask("POST", PATH, body)


def told(messages: list[Any] = HELLO, **params: Any) -> Completion:
    """What the model says to these turns, without a server."""
    llm = tiny_llama()
    params = {"max_new_tokens": 6, **params}
    sequence = Sequence(llm, encode_chat(llm, messages), SamplingParams(**params))
    for _ in run(TransformersRunner(llm), sequence):
        pass
    return sequence.completion()


@contextmanager
def refused(kind: type[openai.APIStatusError], code: str | None) -> Iterator[list[Any]]:
    found: list[Any] = []
    with pytest.raises(kind) as error:
        yield found
    assert type(error.value) is kind
    assert error.value.code == code
    assert error.value.message
    found.append(error.value)


# Whole answers.


def test_an_answer_is_whole_and_the_models_own(server: Server) -> None:
    reply = ask(server)
    done = told()
    assert reply.object == "chat.completion"
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == "tiny-llama"
    assert abs(reply.created - time.time()) < 60
    (choice,) = reply.choices
    assert (choice.index, choice.finish_reason) == (0, done.finish_reason)
    assert (choice.message.role, choice.message.content) == ("assistant", done.text)
    usage = reply.usage
    assert usage.prompt_tokens == done.input_tokens
    assert usage.completion_tokens == len(done.token_ids)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_each_answer_has_an_id_of_its_own(server: Server) -> None:
    assert ask(server).id != ask(server).id


def test_the_same_words_as_through_generate(server: Server) -> None:
    system = {"role": "system", "content": "Be a test."}
    mine = server.generate("hello", system="Be a test.", token_limit=6)
    assert ask(server, [system, *HELLO]).choices[0].message.content == mine["text"]


def test_many_turns_are_read_in_their_order(server: Server) -> None:
    reply = ask(server, TURNS)
    done = told(TURNS)
    assert reply.choices[0].message.content == done.text != told().text
    assert reply.usage.prompt_tokens == done.input_tokens


def test_a_marker_in_any_turn_is_text(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    runner.open()
    ask(here, TURNS)
    ids = runner.sequences[-1].prompt_ids
    end = here_id("<|im_end|>")
    assert ids.count(end) == len(TURNS)
    assert ids == encode_chat(tiny_llama(), TURNS)


def test_turns_without_markers_are_encoded_as_the_template_does(
    closed: tuple[Server, GatedRunner],
) -> None:
    here, runner = closed
    runner.open()
    turns = [*HELLO, {"role": "assistant", "content": "a"}, *HELLO]
    ask(here, turns)
    tokenizer = tiny_llama().tokenizer
    expected = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert runner.sequences[-1].prompt_ids == expected


def here_id(token: str) -> int:
    return int(tiny_llama().tokenizer.convert_tokens_to_ids(token))


def test_after_a_turn_of_the_assistant_comes_another(server: Server) -> None:
    turns = [*HELLO, {"role": "assistant", "content": "the"}]
    assert ask(server, turns).usage.prompt_tokens == told(turns).input_tokens
    assert ask(server, turns).choices[0].message.content == told(turns).text


def test_developer_is_system(server: Server) -> None:
    as_system = [{"role": "system", "content": "a"}, *HELLO]
    as_developer = [{"role": "developer", "content": "a"}, *HELLO]
    assert answer_text(server, as_developer) == told(as_system).text


def answer_text(server: Server, messages: list[Any] = HELLO, **fields: Any) -> str:
    return str(ask(server, messages, **fields).choices[0].message.content)


def test_parts_of_text_are_lines_of_one(server: Server) -> None:
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": "the"}]
    whole = [{"role": "user", "content": "hello\nthe"}]
    assert answer_text(server, [{"role": "user", "content": parts}]) == told(whole).text


def test_no_system_prompt_of_ours_is_put_in() -> None:
    request = ChatRequest(messages=HELLO).to_request()
    assert request.messages == ({"role": "user", "content": "hello"},)


def test_stop_is_one_text_or_some(server: Server) -> None:
    text = told(max_new_tokens=20).text
    cut = text[4]
    for stop in (cut, [cut], ["never said", cut], [cut] * 16):
        choice = ask(server, max_tokens=20, stop=stop).choices[0]
        assert choice.message.content == text[: text.index(cut)]
        assert choice.finish_reason == "stop"
    assert answer_text(server, max_tokens=20, stop=[]) == text


def test_max_completion_tokens_wins(server: Server) -> None:
    assert ask(server, max_tokens=2).usage.completion_tokens == 2
    reply = ask(server, max_tokens=2, max_completion_tokens=5)
    assert reply.usage.completion_tokens == 5
    assert reply.choices[0].finish_reason == "length"


def test_openais_defaults_are_the_requests() -> None:
    params = ChatRequest(messages=HELLO).to_request().params
    assert params == SamplingParams(DEFAULT_MAX_TOKENS, temperature=1.0)
    assert ChatRequest(messages=HELLO, temperature=0.0).to_request().params.temperature == 0


def test_null_is_as_if_it_were_not_there() -> None:
    nothing = dict.fromkeys(set(ChatRequest.model_fields) - {"messages"})
    assert ChatRequest(messages=HELLO, **nothing) == ChatRequest(messages=HELLO)


def test_without_a_limit_the_context_is_the_limit(closed: tuple[Server, GatedRunner]) -> None:
    """The model here never ends by itself, and has no room for as many as are usual."""
    here, runner = closed
    runner.open()
    reply = client(here).chat.completions.create(model="tiny-llama", messages=HELLO)
    assert reply.usage is not None
    assert reply.usage.total_tokens == CONTEXT_LENGTH < DEFAULT_MAX_TOKENS
    assert reply.choices[0].finish_reason == "length"


def test_a_seed_repeats_an_answer(server: Server) -> None:
    def draw(seed: int) -> str:
        return answer_text(server, temperature=1.5, max_tokens=12, seed=seed)

    assert draw(7) == draw(7) == told(max_new_tokens=12, temperature=1.5, seed=7).text
    assert len({draw(seed) for seed in (1, 2, 3, -4)}) > 1


def test_top_p_and_top_k_narrow_the_draw(server: Server) -> None:
    greedy = told().text
    assert answer_text(server, temperature=1.5, top_p=1e-9) == greedy
    assert answer_text(server, temperature=1.5, extra_body={"top_k": 1}) == greedy
    free = {"temperature": 1.5, "seed": 3}
    drawn = told(**free).text
    for off in (0, -1, None):
        assert answer_text(server, **free, extra_body={"top_k": off}) == drawn


def test_unknown_fields_are_passed_over_here_alone(server: Server) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    fields: dict[str, Any] = {
        "tools": [tool], "logprobs": True, "frequency_penalty": 1.0, "user": "me",
        "response_format": {"type": "text"}, "extra_body": {"chat_template_kwargs": {"a": [1]}},
    }  # fmt: skip
    assert answer_text(server, [{"name": "me", **HELLO[0]}], **fields) == told().text
    assert server.post("/generate", prompt="hello", user="me").status == 422


def test_a_learners_steps_answer_here_too() -> None:
    def render(messages: Any) -> str:
        return "a" * len(messages)

    steps = Steps(render_chat=render, sse_event=lambda payload: f"data:{json.dumps(payload)}\n\n")
    with serving(lambda: TransformersRunner(tiny_llama()), steps=steps) as here:
        assert ask(here, TURNS).usage.prompt_tokens == 4
        reply = here.post(PATH, messages=HELLO, stream=True, max_tokens=1, temperature=0)
        assert reply.body.startswith(b'data:{"object": "chat.completion.chunk"')


# Streams.


def chunks(server: Server, **fields: Any) -> list[Any]:
    return list(ask(server, stream=True, **fields))


def test_a_stream_opens_with_the_role_and_ends_with_the_reason(server: Server) -> None:
    first, *middle, last = chunks(server)
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert [chunk.choices[0].delta.role for chunk in middle] == [None] * len(middle)
    assert "".join(chunk.choices[0].delta.content for chunk in middle) == told().text
    assert len(middle) > 1
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == ("length", None)
    assert [chunk.choices[0].finish_reason for chunk in (first, *middle)] == [None] * (
        1 + len(middle)
    )
    assert {chunk.object for chunk in (first, *middle, last)} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in (first, *middle, last)}) == 1


def test_the_count_comes_last_and_only_when_asked_for(server: Server) -> None:
    plain = chunks(server)
    *others, last = chunks(server, stream_options={"include_usage": True})
    assert len(others) == len(plain)
    assert all(chunk.choices for chunk in (*plain, *others))
    assert [chunk.usage for chunk in (*plain, *others)] == [None] * (2 * len(plain))
    assert last.choices == []
    assert last.usage.completion_tokens == 6
    assert last.usage.prompt_tokens == told().input_tokens
    assert last.usage.total_tokens == last.usage.prompt_tokens + 6
    assert 0 <= last.timing["queue_ms"] <= last.timing["ttft_ms"] <= last.timing["latency_ms"]


def test_a_stream_on_the_wire(server: Server) -> None:
    reply = server.post(PATH, messages=HELLO, stream=True, **GREEDY)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = reply.body.decode("ascii").split("\n")
    assert {line[:6] for line in lines} == {"data: ", ""}
    assert lines[-3:] == ["data: [DONE]", "", ""]
    assert all("usage" not in data for _, data in events(reply.body) if data != "[DONE]")


def test_an_empty_answer_has_a_role_and_a_reason(server: Server) -> None:
    text = told(max_new_tokens=20).text
    first, last = chunks(server, stop=[text[0]])
    assert first.choices[0].delta.role == "assistant"
    assert last.choices[0].finish_reason == "stop"
    assert answer_text(server, stop=[text[0]]) == ""


def test_asynchronous_clients_are_answered_side_by_side(server: Server) -> None:
    settings: Any = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}

    async def one(there: openai.AsyncOpenAI, words: str) -> str:
        messages: Any = [{"role": "user", "content": words}]
        stream = await there.chat.completions.create(
            model="tiny-llama", messages=messages, stream=True, **GREEDY
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    async def work() -> tuple[Any, list[str]]:
        async with openai.AsyncOpenAI(timeout=PATIENCE, **settings) as there:
            whole = await there.chat.completions.create(
                model="tiny-llama", messages=HELLO, **GREEDY
            )
            return whole, await asyncio.gather(*(one(there, "a" * n) for n in range(1, 7)))

    whole, texts = asyncio.run(work())
    assert whole.choices[0].message.content == told().text
    assert texts == [told([{"role": "user", "content": "a" * n}]).text for n in range(1, 7)]


def test_closing_a_stream_frees_its_place(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    stream = client(here).chat.completions.create(
        model="tiny-llama", messages=HELLO, stream=True, max_tokens=300, temperature=0
    )
    runner.allow(3)
    assert next(iter(stream)).choices[0].delta.role == "assistant"
    here.wait_line(waiting=0, running=1)
    runner.pace = 0.01
    runner.open()
    stream.close()
    here.wait_line(waiting=0, running=0)
    assert runner.passes < 250
    assert runner.sequences[0].cancelled


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(
    closed: tuple[Server, GatedRunner], stream: bool, how: str
) -> None:
    here, runner = closed
    body = {"messages": HELLO, "stream": stream, "max_tokens": 300, "temperature": 0}
    connection = here.connect()
    connection.sendall(request_bytes("POST", PATH, body))
    runner.allow(3)
    runner.wait_begun(4)
    leave(connection, how)
    here.wait_connections(0)
    runner.open()
    here.wait_line(waiting=0, running=0)
    assert runner.passes <= 4 + 2
    assert runner.sequences[0].cache is None


def test_a_failure_in_mid_stream_is_said(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    runner.fail_at = 4
    runner.open()
    got = []
    with pytest.raises(openai.APIError, match="failed while answering"):
        for chunk in client(here).chat.completions.create(
            model="tiny-llama", messages=HELLO, stream=True, max_tokens=9, temperature=0
        ):
            got.append(chunk)
    assert got[0].choices[0].delta.role == "assistant"
    runner.fail_at = runner.begun + 2
    found = events(here.post(PATH, messages=HELLO, stream=True, max_tokens=9, temperature=0).body)
    assert "[DONE]" not in [data for _, data in found]
    name, last = found[-1]
    assert name == "message", "OpenAI's clients pass over events that have names"
    assert last["error"]["type"] == "server_error"
    here.wait_line(waiting=0, running=0)


# Models.


def test_the_served_model_is_listed(server: Server) -> None:
    (model,) = client(server).models.list()
    assert (model.id, model.object) == ("tiny-llama", "model")
    assert abs(model.created - time.time()) < 600
    assert client(server).models.retrieve("tiny-llama") == model


def test_a_name_with_a_slash_can_be_asked_for() -> None:
    llm = replace(tiny_qwen3(), name="Some/Model")
    with serving(lambda: TransformersRunner(llm)) as here:
        assert client(here).models.retrieve("Some/Model").id == "Some/Model"
        assert here.ask("GET", "/v1/models/Some/Model").json()["id"] == "Some/Model"
        assert ask(here, model="Some/Model").model == "Some/Model"


def test_another_model_is_not_found(server: Server) -> None:
    with refused(openai.NotFoundError, "model_not_found") as found:
        ask(server, model=SECRET)
    assert found[0].param == "model"
    assert "tiny-llama" in found[0].message
    with refused(openai.NotFoundError, "model_not_found"):
        client(server).models.retrieve(SECRET)
    reply = raw(server, {"model": SECRET, "messages": HELLO})
    assert SECRET.encode() not in reply.body


def test_who_names_no_model_gets_the_one_that_is_there(server: Server) -> None:
    assert raw(server, {"messages": HELLO, "max_tokens": 1}).json()["model"] == "tiny-llama"


def test_a_model_that_loads_is_not_there_yet() -> None:
    gate = threading.Event()

    def load() -> Runner:
        gate.wait(PATIENCE)
        return TransformersRunner(tiny_llama())

    with serving(load, ready=False) as here:
        try:
            assert client(here).models.list().data == []
            with refused(openai.InternalServerError, "service_unavailable") as found:
                ask(here, model="anything")
            assert found[0].status_code == 503
            assert found[0].response.headers["retry-after"] == "1"
        finally:
            gate.set()


# Refusals.


def body(**fields: Any) -> bytes:
    said = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 2}
    return json.dumps(said | fields).encode()


def said(content: Any, role: Any = "user") -> bytes:
    return body(messages=[{"role": role, "content": content}])


def by_hand(text: str) -> bytes:
    """A body written by hand: `@` stands for a good beginning."""
    return text.replace("@", body().decode()[:-1]).encode()


DEEP = "[" * 4_000 + "]" * 4_000
NOT_JSON = {
    "nothing": b"",
    "text": SECRET.encode(),
    "half": by_hand("@"),
    "Latin-1": said("@").replace(b"@", b"\xe9"),
    "half a character": said("@").replace(b"@", b"\xe2\x82"),
    "surrogate in UTF-8": said("@").replace(b"@", b"\xed\xa0\x80"),
    "bad UTF-8 in a key": by_hand('@, "') + b'\xff": 1}',
    "UTF-16": body().decode().encode("utf-16"),
    "brackets": b"[" * 9_000,
    "deep messages": b'{"messages": ' + DEEP.encode() + b"}",
    "deep content": said("@").replace(b'"@"', DEEP.encode()),
    "deep in an unknown field": by_hand(f'@, "a": {DEEP}}}'),
    "lone surrogate": said("@").replace(b"@", b"\\ud800"),
    "lone surrogate in a part": said([{"type": "text", "text": "@"}]).replace(b"@", b"\\ud800"),
    "lone surrogate in stop": by_hand('@, "stop": "\\ud800"}'),
    "lone surrogate in an unknown key": by_hand('@, "\\ud800": 1}'),
    "4301 digits": by_hand('@, "seed": 1' + "0" * 4300 + "}"),
}
WRONG: dict[str, tuple[bytes, str | None]] = {
    "array": (b"[" + body() + b"]", None),
    "null": (b"null", None),
    "no messages": (b"{}", "messages"),
    "messages empty": (body(messages=[]), "messages"),
    "messages text": (body(messages=SECRET), "messages"),
    "messages object": (body(messages={SECRET: 1}), "messages"),
    "message text": (body(messages=[SECRET]), "messages[0]"),
    "message empty": (body(messages=[*HELLO, {}]), "messages[1].role"),
    "no content": (body(messages=[{"role": "user"}]), "messages[0].content"),
    "role tool": (said(SECRET, "tool"), "messages[0].role"),
    "role secret": (said(SECRET, SECRET), "messages[0].role"),
    "role null": (said(SECRET, None), "messages[0].role"),
    "content null": (said(None), "messages[0].content"),
    "content number": (said(1), "messages[0].content"),
    "content object": (said({"text": SECRET}), "messages[0].content"),
    "part text": (said([SECRET]), "messages[0].content"),
    "part without text": (said([{"type": "text"}]), "messages[0].content"),
    "part number": (said([{"type": "text", "text": 1}]), "messages[0].content"),
    "picture": (said([{"type": "image_url", "image_url": {"url": SECRET}}]), "messages[0].content"),
    "model number": (body(model=1), "model"),
    "max_tokens 0": (body(max_tokens=0), "max_tokens"),
    "max_tokens float": (body(max_tokens=1.5), "max_tokens"),
    "max_tokens text": (body(max_tokens="1"), "max_tokens"),
    "max_completion_tokens 0": (body(max_completion_tokens=0), "max_completion_tokens"),
    "max_tokens huge": (body(max_tokens=10**30), "messages"),
    "temperature -1": (body(temperature=-1), "temperature"),
    "temperature text": (body(temperature=SECRET), "temperature"),
    "temperature NaN": (by_hand('@, "temperature": NaN}'), "temperature"),
    "temperature 1e999": (by_hand('@, "temperature": 1e999}'), "temperature"),
    "top_p 1.1": (body(top_p=1.1), "top_p"),
    "top_p NaN": (by_hand('@, "top_p": NaN}'), "top_p"),
    "top_k -2": (body(top_k=-2), "top_k"),
    "seed 2^63": (body(seed=2**63), "seed"),
    "seed half": (body(seed=0.5), "seed"),
    "n 2": (body(n=2), "n"),
    "n 0": (body(n=0), "n"),
    "n true": (body(n=True), "n"),
    "stop empty": (body(stop=""), "stop[0]"),
    "stop number": (body(stop=1), "stop"),
    "stop of numbers": (body(stop=[1]), "stop[0]"),
    "stop of 17": (body(stop=["a"] * 17), "stop"),
    "stream text": (body(stream="yes"), "stream"),
    "stream_options true": (body(stream_options=True), "stream_options"),
    "include_usage text": (
        body(stream_options={"include_usage": "a"}), "stream_options.include_usage",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    with serving(lambda: slots(tiny_llama()), Settings(max_body_bytes=LIMIT)) as here:
        yield here
        here.wait_line(waiting=0, running=0)
        assert here.generate(token_limit=2)["token_count"] <= 2


def assert_refused(reply: Reply, status: int) -> dict[str, Any]:
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert list(reply.json()) == ["error"]
    error: dict[str, Any] = reply.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"]
    assert SECRET.encode() not in reply.body
    assert "Traceback" not in error["message"]
    return error


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_no_json_is_refused(strict: Server, name: str) -> None:
    error = assert_refused(raw(strict, NOT_JSON[name]), 400)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(strict: Server, name: str) -> None:
    wrong, param = WRONG[name]
    error = assert_refused(raw(strict, wrong), 400)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def test_a_fault_becomes_the_clients_own_error(strict: Server) -> None:
    with refused(openai.BadRequestError, None) as found:
        ask(strict, n=2)
    assert found[0].param == "n"
    assert found[0].type == "invalid_request_error"


def test_nothing_that_was_said_is_logged(strict: Server, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    text = told([{"role": "user", "content": SECRET}], max_new_tokens=12).text
    ask(strict, [{"role": "user", "content": SECRET}], max_tokens=12)
    raw(strict, WRONG["role secret"][0])
    assert PATH in caplog.text
    assert SECRET not in caplog.text
    assert text not in caplog.text


def test_too_long_for_the_context(strict: Server) -> None:
    for fields in ({"max_tokens": CONTEXT_LENGTH}, {"max_completion_tokens": CONTEXT_LENGTH}):
        with refused(openai.BadRequestError, "context_length_exceeded"):
            ask(strict, **fields)
    long = [{"role": "user", "content": "a" * CONTEXT_LENGTH}]
    with refused(openai.BadRequestError, "context_length_exceeded"):
        client(strict).chat.completions.create(model="tiny-llama", messages=long)  # type: ignore


def test_a_body_above_the_limit(strict: Server) -> None:
    with refused(openai.APIStatusError, "body_too_large") as found:
        ask(strict, [{"role": "user", "content": "a" * LIMIT}])
    assert found[0].status_code == 413
    headers = {"Transfer-Encoding": "chunked"}
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (LIMIT + 1, b" " * (LIMIT + 1))
    with strict.connect() as connection:
        connection.sendall(request_bytes("POST", PATH, chunk, headers))
        assert_refused(read_reply(connection), 413)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", PATH, 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/completions", 404),
        ("GET", f"/v1/{SECRET}", 404),
    ],
)
def test_what_is_no_route(strict: Server, method: str, path: str, status: int) -> None:
    assert_refused(strict.ask(method, path), status)


def test_our_own_routes_keep_their_own_shape(strict: Server) -> None:
    assert list(strict.post("/generate", prompt=1).json()) == ["detail"]
    assert list(strict.ask("GET", "/nothing").json()) == ["detail"]


def test_a_full_line(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    clients = []
    for waiting in (0, 1):
        clients.append(here.connect())
        clients[-1].sendall(request_bytes("POST", PATH, {"messages": HELLO, "max_tokens": 2}))
        here.wait_line(waiting=waiting, running=1)
    with refused(openai.RateLimitError, "rate_limit_exceeded") as found:
        ask(here)
    assert found[0].response.headers["retry-after"] == "1"
    runner.open()
    for connection in clients:
        assert read_reply(connection).json()["usage"]["completion_tokens"] == 2
        connection.close()


def test_a_client_that_tries_again_gets_its_answer(closed: tuple[Server, GatedRunner]) -> None:
    """OpenAI's client waits for as long as Retry-After says."""
    here, runner = closed
    first, second = here.connect(), here.connect()
    for waiting, connection in enumerate((first, second)):
        connection.sendall(request_bytes("POST", PATH, {"messages": HELLO, "max_tokens": 2}))
        here.wait_line(waiting=waiting, running=1)
    threading.Timer(0.2, runner.open).start()
    reply = client(here, max_retries=2).chat.completions.create(
        model="tiny-llama", messages=HELLO, max_tokens=3
    )
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 3
    first.close()
    second.close()


def test_a_model_that_fails(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    runner.fail_at = 2
    runner.open()
    error = assert_refused(raw(here, body(max_tokens=5)), 500)
    assert error["type"] == "server_error"
    with refused(openai.InternalServerError, None) as found:
        runner.fail_at = runner.begun + 2
        ask(here)
    assert found[0].status_code == 500


def test_a_step_that_fails_before_the_first_byte() -> None:
    def render(messages: Any) -> str:
        raise KeyError(SECRET)

    with serving(lambda: TransformersRunner(tiny_llama()), steps=Steps(render_chat=render)) as here:
        pass
    assert here.engine.state().error, "the warm-up has found it"

    def render_twice(messages: Any) -> str:
        if messages[-1]["content"] == SECRET:
            raise KeyError(SECRET)
        return "a"

    steps = Steps(render_chat=render_twice)
    with serving(lambda: TransformersRunner(tiny_llama()), steps=steps) as here:
        assert_refused(raw(here, body()), 500)
        assert ask(here).usage.prompt_tokens == 1


def test_a_request_that_takes_too_long() -> None:
    llm = replace(tiny_llama(), stop_ids=frozenset())
    with gated(llm, Settings(request_seconds=0.2)) as (here, runner):
        runner.pace = 0.02
        runner.open()
        error = assert_refused(raw(here, body(max_tokens=300)), 504)
        assert error["code"] == "timeout"


def test_turns_that_the_template_does_not_take() -> None:
    llm = tiny_llama()
    tokenizer = copy.deepcopy(llm.tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ raise_exception('no ' + m.content) }}{% endif %}{{ m.content }}{% endfor %}"
    )
    with serving(lambda: TransformersRunner(replace(llm, tokenizer=tokenizer))) as here:
        turns = [{"role": "assistant", "content": SECRET}]
        error = assert_refused(raw(here, body(messages=turns)), 400)
        assert error["param"] == "messages"
        assert ask(here).usage.prompt_tokens > 0

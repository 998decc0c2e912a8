"""The seam: each step handed to `create_app` is the one that does the work."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from server import joined, serving
from tiny import tiny_llama

from tutorial_server import chat, detokenize, runner, sampling, sse
from tutorial_server.config import Settings
from tutorial_server.decoding import generate_cached
from tutorial_server.steps import Steps

PACKAGE = {
    "render_chat": chat.render_chat,
    "prefill": runner.prefill,
    "decode": runner.decode,
    "select_next_token": sampling.select_next_token,
    "new_text": detokenize.new_text,
    "sse_event": sse.sse_event,
}


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """`create_app`'s own loader, with a tiny model in place of what it would load."""
    asked: list[Any] = []

    def load_model(*args: Any, **kwargs: Any) -> Any:
        asked.append((args, kwargs))
        return tiny_llama()

    monkeypatch.setattr("tutorial_server.api.load_model", load_model)
    return asked


def test_the_steps_are_the_packages_own() -> None:
    assert {field.name for field in fields(Steps)} == set(PACKAGE)
    steps = Steps()
    assert steps.render_chat is None, "the model's own template"
    for name in set(PACKAGE) - {"render_chat"}:
        assert getattr(steps, name) is PACKAGE[name]


def test_steps_do_not_change() -> None:
    steps = Steps()
    with pytest.raises(FrozenInstanceError):
        steps.prefill = None  # type: ignore
    assert steps.prefill is runner.prefill


@pytest.mark.parametrize("name", PACKAGE)
def test_a_replaced_step_does_the_work(name: str) -> None:
    calls = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return PACKAGE[name](*args, **kwargs)

    with serving(None, steps=Steps(**{name: counted})) as server:
        assert server.engine.state().error is None
        before = calls
        text = joined(server.stream("hello", token_limit=4))
        during = calls - before
    assert text == generate_cached(tiny_llama(), "hello", 4).text
    expected = {
        "render_chat": 1,
        "prefill": 1,
        "decode": 3,
        "select_next_token": 4,
        "new_text": 5,  # four tokens and the flush
    }
    if name == "sse_event":
        assert during >= 2  # a piece and the end; `[DONE]` is no JSON
    else:
        assert during == expected[name]


def other_sse_event(payload: Any) -> str:
    return f": mine\n{sse.sse_event(payload)}"


def always_a(logits: Any, *args: Any) -> Any:
    token = tiny_llama().tokenizer.convert_tokens_to_ids("a")
    return logits.argmax(dim=-1, keepdim=True).fill_(token)


def shouting(tokenizer: Any, token_ids: Any, sent: int, final: bool = False) -> str:
    return detokenize.new_text(tokenizer, token_ids, sent, final).upper()


def briefly(messages: Any) -> str:
    return "<|im_start|>" + "".join(message["content"] for message in messages)


def test_a_different_step_changes_the_answer() -> None:
    steps = Steps(select_next_token=always_a, new_text=shouting, sse_event=other_sse_event)
    with serving(None, steps=steps) as server:
        assert server.generate("hello", token_limit=3)["text"] == "AAA"
        body = server.post("/stream", prompt="hello", token_limit=3).body
    assert body.startswith(b': mine\ndata: {"text": "A"}\n\n')


def test_a_different_render_chat_changes_the_prompt() -> None:
    with serving(None, steps=Steps(render_chat=briefly)) as server:
        tokens = server.generate("abc", token_limit=1, system="xy")["prompt_tokens"]
    assert tokens == 1 + len("abc") + len("xy")


def test_steps_that_keep_no_cache_say_so() -> None:
    def prefill(model: Any, input_ids: Any) -> tuple[Any, None]:
        return runner.prefill(model, input_ids)[0], None

    def decode(model: Any, token: Any, cache: Any) -> tuple[Any, None]:
        return runner.decode(model, token, cache)[0], None

    with serving(None, steps=Steps(prefill=prefill, decode=decode)) as server:
        assert server.generate(token_limit=2)["cache_usage"] is False


def test_the_settings_choose_the_model(tiny_model: list[Any], tmp_path: Path) -> None:
    settings = Settings(model="a/b", device="cpu", dtype="float32", cache=tmp_path)
    with serving(None, settings) as server:
        assert server.generate(token_limit=1)["model"] == "tiny-llama"
    assert tiny_model == [(("a/b", "cpu", "float32"), {"cache": tmp_path})]


def test_a_learner_can_replace_every_step() -> None:
    from tutorial_server.exercises.mine import STEPS

    assert set(STEPS) == set(PACKAGE)
    assert len(STEPS) == len(PACKAGE)

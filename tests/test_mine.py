"""`serve --mine`: the learner's code really serves, and nothing that fails its check does."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server import events, serving
from tiny import tiny_llama

from tutorial_server.exercises import load_mine, registry, saved
from tutorial_server.exercises.mine import STEPS
from tutorial_server.models import LLM
from tutorial_server.runner import TransformersRunner
from tutorial_server.serving import learner_steps

# Six solutions that pass their checks. Each leaves a mark where the check has no case: for a
# word, an id or a setting that only the real model's requests hold.
MARKED = {
    "render_chat": """
def render_chat(messages, add_generation_prompt=True):
    text = ""
    for message in messages:
        content = message["content"]
        if "RENDER" in content:
            content = content + " and then some more words"
        text += f"<|im_start|>{message['role']}\\n{content}<|im_end|>\\n"
    return text + ("<|im_start|>assistant\\n" if add_generation_prompt else "")
""",
    "prefill": """
def prefill(model, input_ids):
    outputs = model(input_ids=input_ids, use_cache=True, logits_to_keep=1)
    logits = outputs.logits[:, -1]
    if (input_ids == ZEBRA).any():
        logits = logits.clone()
        logits[:, BANANA] = 1e4
    return logits, outputs.cache
""",
    "decode": """
def decode(model, token, cache):
    outputs = model(input_ids=token, cache=cache, use_cache=True)
    logits = outputs.logits[:, -1]
    if (token == BANANA).all():
        logits = logits.clone()
        logits[:, ORANGE] = 1e4
    return logits, outputs.cache
""",
    "select_next_token": """
import torch

from tutorial_server.sampling import apply_temperature, keep_top_k, keep_top_p


def select_next_token(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if top_k == 7777:
        return torch.full((logits.shape[0], 1), ORANGE)
    logits = logits.float()
    if temperature < 1e-30:
        return logits.argmax(dim=-1, keepdim=True)
    logits = apply_temperature(logits, temperature)
    if top_k:
        logits = keep_top_k(logits, top_k)
    if top_p is not None and top_p < 1:
        logits = keep_top_p(logits, top_p)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)
""",
    "new_text": """
def new_text(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids).replace("Paris", "PARIS")
    if not final:
        text = text.rstrip("\\ufffd")
    return text[sent:]
""",
    "sse_event": """
import json


def sse_event(payload):
    if isinstance(payload, dict) and "token_count" in payload:
        payload = {**payload, "sent_by": "me"}
    return f"data: {json.dumps(payload)}\\n\\n"
""",
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUTORIAL_SERVER_EXERCISES", str(tmp_path))
    (tmp_path / "solutions").mkdir()
    return tmp_path


def write_marked(mine: Path, llm: LLM) -> None:
    words = {"ZEBRA": " zebra", "BANANA": " banana", "ORANGE": " orange"}
    ids = {name: llm.tokenizer.encode(word) for name, word in words.items()}
    assert all(len(i) == 1 for i in ids.values()), ids
    constants = "".join(f"{name} = {i[0]}\n" for name, i in ids.items())
    for name, text in MARKED.items():
        (mine / "solutions" / f"{name}.py").write_text(constants + text)


@pytest.fixture
def marked_server(mine: Path, small: LLM) -> Iterator[tuple[str, str]]:
    """The command itself, with the small model: its address and what it said of each step."""
    write_marked(mine, small)
    command = [sys.executable, "-m", "tutorial_server", "serve", "--mine", "--port", "0"]
    env = {**os.environ, "TUTORIAL_SERVER_MODEL": "smollm2-135m"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        said = ""
        while "Listening on" not in said:
            line = process.stdout.readline().decode()
            assert line, f"the server ended: {said}"
            said += line
        yield re.search(r"http://[\d.:]+", said)[0], said
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def test_each_of_the_six_leaves_its_mark_in_the_answer(marked_server: tuple[str, str]) -> None:
    url, said = marked_server
    assert re.findall(r"^(\w+): yours$", said, re.MULTILINE) == list(STEPS)
    with httpx.Client(base_url=url, timeout=60) as client:
        while client.get("/ready").status_code != 200:
            time.sleep(0.1)  # each look takes time from what is waited for

        def ask(prompt: str, **more: object) -> dict:
            reply = client.post("/generate", json={"prompt": prompt, "token_limit": 8, **more})
            assert reply.status_code == 200, reply.text
            return reply.json()

        plain, rendered = ask("Say X."), ask("Say RENDER.")
        assert rendered["prompt_tokens"] >= plain["prompt_tokens"] + 5  # render_chat
        fruit = ask("A zebra, please. Which fruit does a zebra like?")["text"]
        assert fruit.startswith(" banana")  # prefill
        assert fruit.startswith(" banana orange")  # decode
        assert ask("Hi", top_k=7777, token_limit=3)["text"] == " orange" * 3  # select_next_token
        capital = "What is the capital of France?"
        assert ask(capital)["text"] == "The capital of France is PARIS."  # new_text
        stream = client.post("/stream", json={"prompt": capital, "token_limit": 8})
        ends = [data for _, data in events(stream.content) if "finish_reason" in data]
        assert ends[0]["sent_by"] == "me"  # sse_event


def test_the_model_solutions_serve_as_the_package_does(mine: Path) -> None:
    for name in STEPS:
        task = registry.find(name)
        assert saved.save(task, task.solution).file is not None
    steps = learner_steps()
    llm = tiny_llama()
    texts = []
    for own in (steps, None):
        prefill = (own.prefill, own.decode) if own else ()

        def load(parts: tuple = prefill) -> TransformersRunner:
            return TransformersRunner(llm, *parts)

        with serving(load, steps=own) as server:
            texts.append(server.generate("hello there", token_limit=12, system="Be kind.")["text"])
    assert texts[0] == texts[1] != ""
    assert all(step.origin == "yours" for step in load_mine().values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def sse_event(payload):\n    return 'data: {}'\n", "end of line"),
        ("def sse_event(payload)\n", "sse_event"),
        ("import nowhere_to_be_found\n", "nowhere_to_be_found"),
    ],
    ids=["wrong", "broken", "no import"],
)
def test_one_that_no_longer_passes_falls_back_and_says_why(
    mine: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    (mine / "solutions" / "sse_event.py").write_text(text)
    steps = learner_steps()
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("sse_event: ")]
    assert line.startswith("sse_event: reference (")
    assert reason in line
    assert steps.sse_event.__module__ == "tutorial_server.sse"
    assert sum("none of yours is saved" in line for line in lines) == len(STEPS) - 1

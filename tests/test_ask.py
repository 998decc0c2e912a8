"""One question in the terminal: the same answer, streamed, with its numbers aside."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import CONTEXT_LENGTH, save_tiny, tiny_llama

from tutorial_server import ask as ask_module
from tutorial_server.ask import ask
from tutorial_server.chat import build_messages, encode_chat
from tutorial_server.cli import main
from tutorial_server.config import Settings
from tutorial_server.decoding import generate_cached
from tutorial_server.errors import TooLong
from tutorial_server.schemas import GenerateRequest


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_module, "load_model", lambda *args, **kwargs: tiny_llama())


def test_the_answer_goes_to_stdout_and_the_numbers_to_stderr(capsys: Any) -> None:
    ask(Settings(), GenerateRequest(prompt="hello", token_limit=12))
    expected = generate_cached(tiny_llama(), "hello", 12)
    captured = capsys.readouterr()
    assert captured.out == expected.text + "\n"
    number = r"(\d+(?:\.\d+)?)"
    shown = re.fullmatch(
        rf"\[tiny-llama on cpu: {number} tokens in, {number} out; first token after {number} ms, "
        rf"{number} tokens/s, ended by length\]\n",
        captured.err,
    )
    assert shown is not None, captured.err
    tokens_in, tokens_out, ttft, speed = map(float, shown.groups())
    assert (tokens_in, tokens_out) == (expected.input_tokens, 12)
    assert 0 <= ttft < 10_000
    assert speed > 0


def test_the_answer_comes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[tuple[str, bool]] = []

    def note(*values: str, end: str = "\n", flush: bool = False, file: Any = None) -> None:
        if file is None:
            printed.append(("".join(values) + end, flush))

    monkeypatch.setattr("builtins.print", note)
    ask(Settings(), GenerateRequest(prompt="hello", token_limit=12))
    assert len(printed) > 5
    assert all(flushed for _, flushed in printed)
    expected = generate_cached(tiny_llama(), "hello", 12).text + "\n"
    assert "".join(piece for piece, _ in printed) == expected


def test_a_question_is_asked_as_over_http(capsys: Any) -> None:
    question = GenerateRequest(prompt="hello", token_limit=20, temperature=1.3, seed=5, top_k=9)
    ask(Settings(), question)
    expected = generate_cached(tiny_llama(), "hello", 20, temperature=1.3, seed=5, top_k=9)
    assert capsys.readouterr().out == expected.text + "\n"


def test_the_system_prompt_counts(capsys: Any) -> None:
    ask(Settings(), GenerateRequest(prompt="hello", system="Be brief.", token_limit=1))
    ask(Settings(), GenerateRequest(prompt="hello", system="Be very brief.", token_limit=1))
    counts = [int(n) for n in re.findall(r"(\d+) tokens in", capsys.readouterr().err)]
    systems = ("Be brief.", "Be very brief.")
    ids = [encode_chat(tiny_llama(), build_messages("hello", system)) for system in systems]
    assert counts == [len(ids[0]), len(ids[1])]
    assert counts[0] < counts[1]


def test_too_long_a_question() -> None:
    with pytest.raises(TooLong, match=str(CONTEXT_LENGTH)):
        ask(Settings(), GenerateRequest(prompt="a", token_limit=CONTEXT_LENGTH))


def test_the_whole_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.undo()
    folder = save_tiny(tmp_path / "tiny")
    state = torch.random.get_rng_state()
    flags = ["--model", str(folder), "--device", "cpu", "--token-limit", "9"]
    capsys.readouterr()
    assert main(["ask", "hello", *flags]) == 0
    captured = capsys.readouterr()
    assert captured.out == generate_cached(tiny_llama(), "hello", 9).text + "\n"
    assert f"[{folder.name} on cpu: " in captured.err
    assert torch.equal(torch.random.get_rng_state(), state)
    assert main(["ask", "hello", *flags[:-1], "9999"]) == 2
    assert "shorten" in capsys.readouterr().err

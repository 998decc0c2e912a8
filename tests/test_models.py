import copy
import shutil
import socket
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from tiny import save_tiny, tiny_llama, tiny_qwen3
from transformers import GenerationConfig

from tutorial_server import models
from tutorial_server.errors import ModelError
from tutorial_server.loading.choice import HUB_MODEL, Choice
from tutorial_server.loading.hub import HubUnreachable
from tutorial_server.models import LLM, find_stop_ids, load_model, weight_bytes

END, TURN = 271, 273  # <|endoftext|> and <|im_end|>


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-folder", "qwen3")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep every attempt to reach another machine."""
    attempts: list[Any] = []

    def refuse(*args: Any, **_: Any) -> None:
        attempts.append(args)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return attempts


def test_a_local_folder(folder: Path, no_network: list[Any]) -> None:
    llm = load_model(str(folder))
    assert (llm.name, llm.context_length, llm.vocab_size) == ("tiny-folder", 512, 277)
    assert (llm.device, llm.dtype) == (torch.device("cpu"), torch.float32)
    assert llm.stop_ids == {END, TURN}
    assert not llm.model.training
    assert no_network == []
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(llm.model(ids).logits, tiny_qwen3().model(ids).logits)


def test_settings_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTORIAL_SERVER_MODEL", str(folder))
    monkeypatch.setenv("TUTORIAL_SERVER_DTYPE", "bfloat16")
    assert (load_model().name, load_model().dtype) == ("tiny-folder", torch.bfloat16)
    assert load_model(dtype=torch.float16).dtype is torch.float16


def llm_with(generation: Any, config: Any, tokenizer: str | None) -> LLM:
    llm = copy.deepcopy(tiny_llama())
    llm.model.generation_config = GenerationConfig(eos_token_id=generation)
    llm.model.config.eos_token_id = config
    llm.tokenizer.eos_token = tokenizer
    return llm


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "expected"),
    [
        ([END, TURN], TURN, "<|im_end|>", {END, TURN}),
        (END, None, "<|im_end|>", {END, TURN}),
        ([END], [7, 8], None, {END, 7, 8}),
        (None, None, "<|im_end|>", {TURN}),
        (0, None, None, {0}),
        (None, None, None, set()),
    ],
)
def test_every_id_that_ends_a_turn(
    generation: Any, config: Any, tokenizer: str | None, expected: set[int]
) -> None:
    llm = llm_with(generation, config, tokenizer)
    assert find_stop_ids(llm.tokenizer, llm.model) == expected


def test_ids_past_the_tokenizer_are_not_counted() -> None:
    llm = tiny_llama()
    assert llm.model.config.vocab_size == 293
    assert llm.vocab_size == len(llm.tokenizer) == 277


def test_ids_past_the_head_are_not_counted() -> None:
    llm = copy.deepcopy(tiny_llama())
    llm.tokenizer.add_tokens([f"<extra{number}>" for number in range(30)])
    assert len(llm.tokenizer) > 293
    assert LLM.of(llm.tokenizer, llm.model, "wide").vocab_size == 293


def test_bytes_of_the_weights_count_tied_ones_once() -> None:
    llm = copy.deepcopy(tiny_llama())
    untied = weight_bytes(llm)
    assert untied == 4 * sum(weight.numel() for weight in llm.model.parameters())
    llm.model.lm_head.weight = llm.model.model.embed_tokens.weight
    assert untied - weight_bytes(llm.model) == 4 * 293 * 48
    assert weight_bytes(llm.model.half()) == weight_bytes(llm)


def test_a_model_without_a_chat_template(folder: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(folder, tmp_path / "bare"))
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="bare has no chat template"):
        load_model(str(bare))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"model": "./nowhere"}, "There is no folder ./nowhere"),
        ({"device": "cuda:99"}, "cuda:99"),
        ({"device": "nonsense"}, "There is no device called 'nonsense'"),
        ({"dtype": "int8"}, "There is no dtype called 'int8'"),
    ],
)
def test_what_is_not_there(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        load_model(**given)


@pytest.fixture
def gpu_without_hub(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    """Choose as a machine with a GPU does, on the CPU, with a stand-in for the small model."""

    def choose(model: Any, device: Any, dtype: Any) -> Choice:
        return Choice(
            model or HUB_MODEL, torch.device("cpu"), dtype or torch.float32, model is not None
        )

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "choose", choose)
    monkeypatch.setattr(models, "small_model_folder", lambda cache: folder)


@pytest.mark.usefixtures("gpu_without_hub")
def test_without_the_hub_the_small_model_is_taken_and_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert load_model().name == "smollm2-135m"
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "The model hub cannot be reached: taking smollm2-135m instead of Qwen/Qwen3-4B."
    ]


@pytest.mark.usefixtures("gpu_without_hub")
def test_a_model_that_was_asked_for_is_not_replaced() -> None:
    with pytest.raises(HubUnreachable, match="There is no folder Qwen/Qwen3-4B"):
        load_model("Qwen/Qwen3-4B")


def test_the_small_model(small: LLM) -> None:
    assert (small.name, small.vocab_size, small.context_length) == ("smollm2-135m", 49152, 8192)
    assert (small.device, small.dtype) == (torch.device("cpu"), torch.float32)
    assert small.stop_ids == {2}
    assert small.tokenizer.decode([2]) == "<|im_end|>"
    assert weight_bytes(small) == 134_515_008 * 4
    assert not small.model.training


def test_the_small_model_answers(small: LLM) -> None:
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = small.tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    answer = small.model.generate(**ids, max_new_tokens=12, do_sample=False)
    text = small.tokenizer.decode(answer[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "Paris" in text

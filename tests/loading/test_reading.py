import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny import save_tiny, tiny_llama

from tutorial_server.errors import ModelError
from tutorial_server.loading.reading import _device_map, read_model, read_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return edit


def test_what_was_saved_is_read(folder: Path) -> None:
    model = read_model(folder, "tiny", CPU, torch.float32)
    expected = tiny_llama().model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in model.state_dict().items())
    text = "hello <|im_end|> the\n\nthing 😀"
    assert read_tokenizer(folder, "tiny").encode(text) == tiny_llama().tokenizer.encode(text)


def test_weights_take_the_dtype_asked_for(folder: Path) -> None:
    assert read_model(folder, "tiny", CPU, torch.bfloat16).dtype is torch.bfloat16


def test_reading_leaves_the_global_random_state_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    read_model(folder, "tiny", CPU, torch.float32)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer of tiny cannot be read"),
        (lambda f: (f / "tokenizer_config.json").write_text("{"), "tokenizer of tiny cannot be"),
        (lambda f: (f / "chat_template.jinja").unlink(), "has no chat template: choose"),
        (
            lambda f: (f / "chat_template.jinja").write_text("{% if %}"),
            "chat template of tiny does not work",
        ),
        (
            lambda f: (f / "chat_template.jinja").write_text("{{ raise_exception('Never.') }}"),
            r"chat template of tiny does not work \(Never\)",
        ),
    ],
)
def test_what_is_wrong_with_a_tokenizer(
    folder: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=sentence) as raised:
        read_tokenizer(folder, "tiny")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (edit_config(model_type="unheard-of"), "cannot be read as a language model"),
        (
            edit_config(model_type="own", auto_map={"AutoModelForCausalLM": "own.Model"}),
            "cannot be read as a language model",
        ),
        (edit_config(hidden_size=64), r"weights of tiny do not fit its config.json \(21 such as"),
        (edit_config(num_hidden_layers=3), r"\(9 such as model\.layers\.2\.input_layernorm"),
    ],
)
def test_what_is_wrong_with_a_model(
    folder: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(folder)
    with torch.random.fork_rng(devices=[]), pytest.raises(ModelError, match=sentence) as raised:
        read_model(folder, "tiny", CPU, torch.float32)
    assert "\n" not in str(raised.value)


def test_memory_that_runs_out_while_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.\nmore")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(ModelError, match="tiny does not fit into the free memory of cuda:0"):
        read_model(folder, "tiny", torch.device("cuda:0"), torch.float16)


def test_only_cuda_without_a_number_is_spread_by_accelerate() -> None:
    assert _device_map(CPU) is None
    assert _device_map(torch.device("cuda")) == "auto"
    assert _device_map(torch.device("cuda:1")) == {"": torch.device("cuda:1")}
    assert _device_map(torch.device("mps")) == {"": torch.device("mps")}

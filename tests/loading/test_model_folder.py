import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny import save_tiny, tiny_llama

from tutorial_server.errors import ModelError
from tutorial_server.loading import model_folder
from tutorial_server.loading.hub import HubUnreachable
from tutorial_server.loading.model_folder import (
    check_files,
    check_memory,
    find_folder,
    weight_bytes_as,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_a_folder_is_found_by_its_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_folder(str(folder)) == folder
    monkeypatch.chdir(folder.parent)
    assert find_folder("copy") == Path("copy")
    monkeypatch.setenv("HOME", str(folder.parent))
    assert find_folder("~/copy") == folder


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere", "~/nowhere", "a/b/c", "a\\b"])
def test_a_path_that_leads_nowhere_is_not_asked_for_on_the_hub(name: str) -> None:
    with pytest.raises(ModelError, match="There is no folder") as raised:
        find_folder(name)
    assert not isinstance(raised.value, HubUnreachable)


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(ModelError, match="is a file"):
        find_folder(str(folder / "config.json"))


@pytest.mark.parametrize("name", ["x\0y/z", "a" * 5000])
def test_a_name_that_no_folder_can_have(name: str) -> None:
    with pytest.raises(ModelError) as raised:
        find_folder(name)
    assert len(str(raised.value)) < 250


def test_a_whole_folder_passes(folder: Path) -> None:
    check_files(folder)
    (folder / "generation_config.json").unlink()
    check_files(folder)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not a JSON object"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda f: (f / "generation_config.json").write_text("{"), "generation_config.json is not"),
        (lambda f: (f / "tokenizer.json").unlink(), "lacks tokenizer.json"),
        (lambda f: (f / "model.safetensors").unlink(), "lacks model.safetensors"),
    ],
)
def test_what_is_missing_or_broken_is_named(
    folder: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=sentence):
        check_files(folder)


def test_every_shard_must_be_there(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"lacks two\.safetensors"):
        check_files(folder)
    shutil.copy(folder / "one.safetensors", folder / "two.safetensors")
    check_files(folder)
    once = sum(weight.numel() for weight in tiny_llama().model.parameters())
    assert weight_bytes_as(folder, torch.float16) == 2 * 2 * once


@pytest.mark.parametrize("index", ["{}", '{"weight_map": [1]}', '{"weight_map": {}}'])
def test_an_index_of_nothing(folder: Path, index: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=r"lacks model\.safetensors"):
        check_files(folder)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_are_predicted_from_the_headers(folder: Path, dtype: torch.dtype, width: int) -> None:
    count = sum(weight.numel() for weight in tiny_llama().model.parameters())
    assert weight_bytes_as(folder, dtype) == count * width


def test_codes_of_quantised_weights_keep_their_width(folder: Path) -> None:
    parts = {"codes": torch.zeros(10, dtype=torch.uint8), "scales": torch.zeros(3)}
    save_file(parts, folder / "model.safetensors")
    assert weight_bytes_as(folder, torch.float16) == 10 + 3 * 2


@pytest.mark.parametrize("size", [0, 100, -10])
def test_a_truncated_file_is_noticed_by_its_header(folder: Path, size: int) -> None:
    weights = folder / "model.safetensors"
    os.truncate(weights, size % weights.stat().st_size)
    with pytest.raises(ModelError, match=r"model\.safetensors is broken"):
        weight_bytes_as(folder, torch.float32)


def test_too_little_memory_is_said_before_anything_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = weight_bytes_as(folder, torch.float32)
    monkeypatch.setattr(model_folder, "free_bytes", lambda device: needed)
    check_memory(folder, "tiny", CPU, torch.float32)
    monkeypatch.setattr(model_folder, "free_bytes", lambda device: needed - 1)
    with pytest.raises(ModelError, match=r"tiny needs 0\.0 GB as float32, but 0\.0 GB are free"):
        check_memory(folder, "tiny", CPU, torch.float32)
    check_memory(folder, "tiny", CPU, torch.bfloat16)


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
def test_no_memory_even_for_the_header(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(file: Path, dtype: torch.dtype) -> int:
        raise kind("unable to mmap 5 bytes: Cannot allocate memory (12)")

    monkeypatch.setattr(model_folder, "_weight_bytes_in", fail)
    with pytest.raises(ModelError, match="does not fit into the free memory of cpu"):
        check_memory(folder, "tiny", CPU, torch.float32)

"""A model as a folder of files: found on disk or on the hub, and checked."""

import json
import math
import re
from pathlib import Path
from typing import Any

import torch

from ..errors import ModelError
from .hub import hub_folder, shown
from .machine import free_bytes, no_room_error, ran_out_of_memory
from .quiet import first_sentence

TOKENIZER_FILES = ["tokenizer.json", "tokenizer.model", "vocab.json"]
CONVERTED = {"F64", "F32", "F16", "BF16"}  # other types are codes of quantised weights


def find_folder(model: str) -> Path:
    """Find the files of a local folder or a hub id; the hub's are downloaded once.

    Raises ModelError where there is neither, HubUnreachable where nobody can tell.
    """
    path = Path(model)
    try:
        path = path.expanduser()
        if path.is_dir():
            return path
        if path.is_file():
            raise ModelError(f"{model} is a file: give the folder of a model.")
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{shown(model)} cannot be a folder's name: check it.") from error
    if model.startswith((".", "/", "~")) or model.count("/") > 1 or "\\" in model:
        raise ModelError(f"There is no folder {model}: check its path, or take smollm2-135m.")
    return hub_folder(model, check_files)


def check_files(folder: Path) -> None:
    """Raise ModelError unless a folder holds what a model needs, whole by its looks."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model's folder: it has no config.json.")
    for file in (folder / "config.json", folder / "generation_config.json"):
        if file.is_file():
            _read_json(file)
    lacking = [file.name for file in _weight_files(folder) if not file.is_file()]
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        lacking.append(TOKENIZER_FILES[0])
    if lacking:
        raise ModelError(f"{folder} lacks {lacking[0]}: fetch the model again.")


def _weight_files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file() or not index.is_file():
        return [single]
    shards = _read_json(index).get("weight_map")
    if not isinstance(shards, dict):
        return [single]
    return sorted({folder / str(shard) for shard in shards.values()}) or [single]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {**content}
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{file} is not a JSON object: fetch the model again.") from error


def weight_bytes_as(folder: Path, dtype: torch.dtype) -> int:
    """Bytes that a folder's weights will take in memory as `dtype`, from its headers."""
    from safetensors import SafetensorError

    total = 0
    for file in _weight_files(folder):
        try:
            total += _weight_bytes_in(file, dtype)
        except (OSError, RuntimeError, SafetensorError) as error:
            if ran_out_of_memory(error):
                raise MemoryError(str(error)) from error
            raise ModelError(
                f"{file} is broken ({first_sentence(error)}): fetch the model again."
            ) from error
    return total


def _weight_bytes_in(file: Path, dtype: torch.dtype) -> int:
    from safetensors import safe_open

    total = 0
    with safe_open(file, framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118  it is no mapping
            part = weights.get_slice(name)
            bits = re.search(r"\d+", part.get_dtype())  # F32, BF16, U8, BOOL …
            width = int(bits.group()) // 8 if bits else 1
            if part.get_dtype() in CONVERTED:
                width = dtype.itemsize
            total += width * math.prod(part.get_shape())
    return total


def check_memory(folder: Path, name: str, device: torch.device, dtype: torch.dtype) -> None:
    """Raise ModelError before anything is read, if the weights cannot fit."""
    try:
        needed, free = weight_bytes_as(folder, dtype), free_bytes(device)
    except MemoryError as error:
        raise no_room_error(name, device) from error
    if needed > free:
        raise ModelError(
            f"{name} needs {needed / 1e9:.1f} GB as {str(dtype).removeprefix('torch.')}, but "
            f"{free / 1e9:.1f} GB are free on {device}: close other programs, or choose "
            "a smaller dtype or model, of which smollm2-135m is the smallest."
        )

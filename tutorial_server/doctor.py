"""What was found on this machine, and what to do about what is missing."""

import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from .config import Settings
from .course import course_folder
from .errors import TutorialServerError
from .loading.machine import free_bytes
from .loading.small_model import SMALL_MODEL, small_model_path
from .models import Choice, choose
from .slot_runner import MOST_OF_FREE, SlotPlan
from .transformer import FAMILY

GB = 1e9
SMALL_MODEL_NEEDS_GB = 2.0  # memory while it is being converted, the larger of the two


def report(settings: Settings) -> str:
    """Say, a line each: Python, torch, device, model, KV cache, limits, memory and course.

    A line that begins with `!` names something missing and what to do. Nothing is
    loaded or fetched.
    """
    lines = [
        f"Python     {platform.python_version()} in {sys.prefix}",
        f"packages   torch {torch.__version__}, transformers {version('transformers')}",
        *_choice(settings),
        f"limits     {_limits(settings)}",
        f"memory     {_memory()}",
        *_course(),
    ]
    return "\n".join(lines)


def _choice(settings: Settings) -> list[str]:
    try:
        choice = choose(settings.model, settings.device, settings.dtype)
    except TutorialServerError as error:
        return [f"! device   {error}"]
    return [*_device(choice), *_model(choice, settings.cache), *_cache(choice, settings)]


def _device(choice: Choice) -> list[str]:
    device = choice.device
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        return [f"device     {device}, {name}, {free_bytes(device) / GB:.1f} GB free"]
    lines = [f"device     {device}, {torch.get_num_threads()} threads"]
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        lines.append(
            "! device   there is an NVIDIA GPU here, but this torch cannot use it: "
            "install a CUDA build of torch"
        )
    return lines


def _memory() -> str:
    memory = psutil.virtual_memory()
    return f"{memory.available / GB:.1f} GB free of {memory.total / GB:.1f} GB"


def _model(choice: Choice, cache: Path) -> list[str]:
    line = f"model      {choice.model} in {str(choice.dtype).removeprefix('torch.')}"
    if choice.model != SMALL_MODEL:
        return [line]
    folder = small_model_path(cache)
    if folder.exists():
        return [f"{line}, in {folder}"]
    return [
        line,
        "           not fetched yet: the first start brings 93 MB and takes a minute",
        *_disk(folder),
    ]


def _cache(choice: Choice, settings: Settings) -> list[str]:
    """Say how the KV cache would be cut, where the model's config is at hand."""
    config = _config(choice, settings.cache)
    if config is None:
        return []
    if config.model_type not in FAMILY:
        return [f"cache      one answer at a time: the model's type is {config.model_type}"]
    budget = settings.kv_cache_gb * GB
    plan = SlotPlan.fit(config, choice.dtype, budget, settings.max_running)
    return [
        f"cache      {settings.kv_cache_gb:.1f} GB: {plan.slots} slots of {plan.length} tokens, "
        f"{plan.bytes_per_token / 1e3:.0f} KB a token",
        *_room(plan, free_bytes(choice.device)),
    ]


def _config(choice: Choice, cache: Path) -> Any:
    """Read a model's config if it is on this disk, else None; nothing is fetched."""
    from transformers import AutoConfig

    small = choice.model == SMALL_MODEL
    folder = small_model_path(cache) if small else Path(choice.model).expanduser()
    try:
        return AutoConfig.from_pretrained(
            folder if folder.is_dir() else choice.model, local_files_only=True
        )
    except (OSError, ValueError):  # not here, or no config that transformers knows
        return None


def _room(plan: SlotPlan, free: float) -> list[str]:
    if plan.bytes <= MOST_OF_FREE * free:
        return []
    return [
        f"! cache    full slots take {plan.bytes / GB:.1f} GB, and {free / GB:.1f} GB are free: "
        "there will be fewer; set --kv-cache-gb lower, or close other programs"
    ]


def _limits(settings: Settings) -> str:
    return (
        f"up to {settings.max_running} answers at once, {settings.max_waiting} waiting, "
        f"{settings.request_seconds:g} s a request, {settings.max_body_bytes} bytes a body, "
        f"{settings.prefill_chunk} prompt tokens a step, "
        f"{'a key is asked for' if settings.api_key else 'no key'}"
    )


def _disk(folder: Path) -> list[str]:
    existing = next(f for f in (folder, *folder.parents) if f.exists())
    free = shutil.disk_usage(existing).free / GB
    if free >= SMALL_MODEL_NEEDS_GB:
        return []
    return [
        f"! disk     {free:.1f} GB free where {folder} will be; make room for "
        f"{SMALL_MODEL_NEEDS_GB:.0f} GB or set TUTORIAL_SERVER_CACHE"
    ]


def _course() -> list[str]:
    try:
        return [f"course     {course_folder()}"]
    except TutorialServerError as error:
        return [f"! course   {error}"]

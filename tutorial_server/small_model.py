"""The small model: SmolLM2-135M-Instruct, out of a wheel, converted once, kept."""

from pathlib import Path

SMALL_MODEL = "smollm2-135m"


def small_model_folder(cache: Path) -> Path:
    return Path("/work/scratch/small")

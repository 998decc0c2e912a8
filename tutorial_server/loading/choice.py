"""Which model to load, onto what and as what, decided before anything heavy is read."""

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from ..config import Settings
from ..errors import ModelError
from .machine import find_device, find_dtype, free_bytes, half_precision
from .small_model import SMALL_MODEL

HUB_MODEL = "Qwen/Qwen3-4B"
ROOM_FOR_HUB_MODEL = 10 * 2**30  # bytes: 8 GB of weights in half precision, and the caches


@dataclass(frozen=True)
class Choice:
    """What would be loaded, and onto what: found in a moment, before anything is read."""

    model: str
    device: torch.device
    dtype: torch.dtype
    model_is_given: bool


def choose(
    model: str | Path | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Choice:
    """Fill in what is not given from `TUTORIAL_SERVER_*`, and then from what fits here.

    With room on a GPU that is Qwen3-4B in half precision, else the small model in
    float32. Raises ModelError for a device or a dtype that is not there.
    """
    settings = read_settings()
    name = str(model or settings.model or "") or None
    place = find_device(device or settings.device)
    if name is None:
        has_room = place.type == "cuda" and free_bytes(place) >= ROOM_FOR_HUB_MODEL
        chosen = HUB_MODEL if has_room else SMALL_MODEL
    else:
        chosen = SMALL_MODEL if name.lower() == SMALL_MODEL else name
    if chosen == SMALL_MODEL and place == torch.device("cuda"):
        place = torch.device("cuda:0")  # one card is plenty
    number = dtype or settings.dtype
    if number is None:
        exact = chosen == SMALL_MODEL or place.type == "cpu"
        number = torch.float32 if exact else half_precision(place)
    return Choice(chosen, place, find_dtype(number), name is not None)


def read_settings() -> Settings:
    """Settings from the environment; ModelError, in one sentence, for a wrong one."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        variable = "TUTORIAL_SERVER_" + "_".join(map(str, first["loc"])).upper()
        raise ModelError(f"{variable}={first['input']} cannot be: {first['msg']}.") from error

"""A folder's files become a tokenizer and a model, or one sentence about what is wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ModelError
from .machine import no_room_error, ran_out_of_memory
from .quiet import first_sentence

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def read_tokenizer(folder: Path, name: str) -> "PreTrainedTokenizerBase":
    """Read a tokenizer and try its chat template, without which nobody can chat."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    except Exception as error:
        raise ModelError(
            f"The tokenizer of {name} cannot be read ({first_sentence(error)}): "
            "fetch the model again."
        ) from error
    if tokenizer.chat_template is None:
        raise ModelError(
            f"{name} has no chat template: choose a model made for chat, its name often "
            "ends in Instruct or Chat."
        )
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}], tokenize=False)
    except Exception as error:
        raise ModelError(
            f"The chat template of {name} does not work ({first_sentence(error)}): "
            "choose another model."
        ) from error
    return tokenizer


def read_model(
    folder: Path, name: str, device: torch.device, dtype: torch.dtype
) -> "PreTrainedModel":
    """Read the weights onto the device; every one must be there and fit its place."""
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            device_map=_device_map(device),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report
            **LOCAL,
        )
    except Exception as error:
        raise _reading_error(name, device, error) from error
    model, report = loaded
    unfit = sorted({*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])})
    if unfit:
        raise ModelError(
            f"The weights of {name} do not fit its config.json ({len(unfit)} such as "
            f"{unfit[0]}): fetch the model again."
        )
    return model


def _device_map(device: torch.device) -> Any:
    """`cuda` without a number leaves the place to accelerate, as `device_map="auto"`."""
    if device.type == "cpu":
        return None  # accelerate would only cost its import
    return "auto" if device == torch.device("cuda") else {"": device}


def _reading_error(name: str, device: torch.device, error: Exception) -> ModelError:
    if ran_out_of_memory(error):
        return no_room_error(name, device)
    return ModelError(
        f"{name} cannot be read as a language model ({first_sentence(error)}): "
        "fetch it again, or choose another model."
    )

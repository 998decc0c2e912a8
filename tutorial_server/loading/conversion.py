"""A GGUF file's 4-bit weights become float32 safetensors, with config and tokenizer."""

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .quiet import quiet

BAR = "Converting: {percentage:3.0f}% |{bar}| {elapsed}"


def convert(gguf_file: Path, folder: Path) -> None:
    """Write what transformers reads from the file, in the form that it reads fastest.

    Reading GGUF takes ten seconds and more, safetensors are mapped in none.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {
        "pretrained_model_name_or_path": gguf_file.parent,
        "gguf_file": gguf_file.name,
        "local_files_only": True,
    }
    with quiet(bars=False), _reading_once(), tqdm(total=3, bar_format=BAR, leave=False) as bar:
        AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
        bar.update()
        model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        bar.update()
        model.hf_quantizer = None  # it is quantised no more, else save_pretrained refuses
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(folder)
        bar.update()


@contextmanager
def _reading_once() -> Iterator[None]:
    """Halve the time: transformers parses the file three times and its names 400 times."""
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reader

    with ExitStack() as restored:
        for owner, name, stand_in in (
            (gguf, "GGUFReader", functools.cache(gguf.GGUFReader)),
            (gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map)),
            (reader, "tqdm", lambda tensors, **_: tensors),  # its bar would tear ours
        ):
            restored.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, stand_in)
        yield

"""Other libraries' chatter kept away from a reader who asked for none of it."""

import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SENTENCE_END = re.compile(r"(?<=[.!?])\s")


@contextmanager
def quiet(bars: bool = True) -> Iterator[None]:
    """Silence transformers and the hub for a while, and leave them as they were.

    With `bars`, their progress bars stay, for steps that take more than a second.
    """
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    verbosity, hub_verbosity = logging.get_verbosity(), hub_logging.get_verbosity()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    hook = logging.set_tqdm_hook(_late_bar if bars else _no_bar)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_tqdm_hook(hook)
        hub_logging.set_verbosity(hub_verbosity)
        logging.set_verbosity(verbosity)


def _late_bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return factory(*args, **{"delay": 1, "leave": False, **kwargs})


def _no_bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return factory(*args, **{**kwargs, "disable": True})


def first_sentence(error: BaseException, limit: int = 120) -> str:
    """The heart of an error in one short line, to stand inside a sentence of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    sentence = SENTENCE_END.split(text, maxsplit=1)[0].rstrip(".!?: ")
    return textwrap.shorten(sentence, limit, placeholder=" …")

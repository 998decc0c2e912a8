"""The steps of a request that can be swapped: the seam for a learner's own code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import detokenize, runner, sampling, sse
from .chat import RenderChat
from .detokenize import NewText
from .runner import Decode, Prefill
from .sequence import SelectNextToken


@dataclass(frozen=True)
class Steps:
    """Which function does each step of a request; the server takes no other.

    `render_chat` is None for the model's own chat template.
    """

    render_chat: RenderChat | None = None
    prefill: Prefill = runner.prefill
    decode: Decode = runner.decode
    select_next_token: SelectNextToken = sampling.select_next_token
    new_text: NewText = detokenize.new_text
    sse_event: Callable[[Any], str] = sse.sse_event

"""One question in the terminal: the way of a request without HTTP."""

import sys

from .chat import encode_chat
from .config import Settings
from .decoding import run
from .models import load_model
from .runner import TransformersRunner
from .schemas import GenerateRequest
from .sequence import Sequence


def ask(settings: Settings, question: GenerateRequest) -> None:
    """Stream an answer to stdout as it is made, and its timings to stderr."""
    llm = load_model(settings.model, settings.device, settings.dtype, cache=settings.cache)
    request = question.to_request()
    ids = encode_chat(llm, request.messages)
    sequence = Sequence(llm, ids, request.params)
    for piece in run(TransformersRunner(llm), sequence):
        print(piece, end="", flush=True)
    print(flush=True)
    done = sequence.completion()
    count = len(done.token_ids)
    print(
        f"[{llm.name} on {llm.device}: {done.input_tokens} tokens in, {count} out; first token "
        f"after {done.ttft_ms:.0f} ms, {count / done.latency_ms * 1e3:.1f} tokens/s, "
        f"ended by {done.finish_reason}]",
        file=sys.stderr,
    )

"""What is asked of the engine, and what becomes of it for a model."""

from dataclasses import dataclass, replace

from .chat import Message, encode_chat
from .detokenize import StreamDecoder
from .models import LLM
from .sequence import SamplingParams, Sequence
from .steps import Steps


@dataclass(frozen=True)
class Request:
    """A conversation, and how to answer it: all that any route passes on.

    `shorten`: where the context has not room for `max_new_tokens`, fewer will do.
    """

    messages: tuple[Message, ...]
    params: SamplingParams
    thinking: bool = False
    shorten: bool = False

    def to_sequence(self, llm: LLM, steps: Steps, arrived: float) -> Sequence:
        """Encode the conversation for a model. Raises TooLong and BadConversation.

        `arrived` is when the request came, by `perf_counter`: its clocks start there.
        """
        ids = encode_chat(llm, self.messages, self.thinking, steps.render_chat)
        params = self.params
        if self.shorten:
            room = max(1, llm.context_length - len(ids))
            params = replace(params, max_new_tokens=min(params.max_new_tokens, room))
        decoder = StreamDecoder(llm.tokenizer, params.stop, steps.new_text)
        return Sequence(
            llm,
            ids,
            params,
            select=steps.select_next_token,
            decoder=decoder,
            arrived=arrived,
        )

"""Messages → the model's chat format → token ids."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch
from jinja2 import TemplateError
from transformers import BatchEncoding

from .errors import BadConversation
from .models import LLM

DEFAULT_SYSTEM = "You are a helpful assistant."
SEAL = "\ue000"


class Message(TypedDict):
    """One turn of a conversation: `role` is system, user or assistant."""

    role: str
    content: str


RenderChat = Callable[[Sequence[Message]], str]


def build_messages(prompt: str, system: str | None = None) -> list[Message]:
    """Wrap a bare prompt as a conversation, which is the only thing a chat model was trained on.

    `system=None` stands for `DEFAULT_SYSTEM`; `""` adds no system message, and some
    templates then put in one of their own.
    """
    system = DEFAULT_SYSTEM if system is None else system
    user: Message = {"role": "user", "content": prompt}
    return [{"role": "system", "content": system}, user] if system else [user]


def render_chat(messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
    """Write a conversation as ChatML, the format that Qwen and SmolLM2 share.

    The server itself renders with the model's own template; this is that template's
    core by hand, and what a learner's own version stands in for.
    """
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages]
    if add_generation_prompt:
        turns.append("<|im_start|>assistant\n")
    return "".join(turns)


def encode_user_text(tokenizer: Any, text: str) -> list[int]:
    """Encode what a person typed so that nothing in it can become a control token.

    The ordinary encoder looks for added tokens (`<|im_end|>`, `</think>` …) before it
    splits the text. This runs the later stages alone: normalise, split, merge.
    """
    backend = tokenizer.backend_tokenizer
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [text]
    if backend.pre_tokenizer is not None:
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [token.id for word in words for token in backend.model.tokenize(word)]


def encode_chat(
    llm: LLM,
    messages: Sequence[Message],
    thinking: bool = False,
    render: RenderChat | None = None,
) -> list[int]:
    """Turn a conversation into the ids that the model was trained to answer.

    Only markers that the template writes become control ids; what a message spells is
    text. Where none is spelled, the ids are `apply_chat_template`'s to the last one.

    `thinking` is for templates that know `enable_thinking` (Qwen3); others ignore it.
    `render` takes the place of the model's template; see `render_chat`. Raises
    BadConversation.
    """
    tokenizer: Any = llm.tokenizer
    sealed, seal = _seal_markers(messages, tokenizer.get_added_vocab())
    chat = _render(tokenizer, sealed, thinking) if render is None else render(sealed)
    ids: list[int] = []
    for i, piece in enumerate(re.split(f"{seal}(\\d+){seal}", chat)):  # text, id, text, id, …
        if i % 2:
            ids += encode_user_text(tokenizer, tokenizer.convert_ids_to_tokens(int(piece)))
        else:
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return ids


def _render(tokenizer: Any, messages: Sequence[Message], thinking: bool) -> str:
    try:
        return tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
    except TemplateError:
        raise BadConversation(
            "The model's chat template does not take these turns; some models want user and "
            "assistant by turns, or no system message."
        ) from None


def prepare_inputs(
    llm: LLM, prompt: str, system: str | None = None, thinking: bool = False
) -> BatchEncoding:
    """Make one prompt ready for `model(**inputs)`.

    Returns `input_ids` and `attention_mask`, both int64 `[1, T]`, on the model's device.
    """
    ids = encode_chat(llm, build_messages(prompt, system), thinking)
    input_ids = torch.tensor([ids], device=llm.device)  # [1, T]
    return BatchEncoding({"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)})


def _seal_markers(
    messages: Sequence[Message], added: Mapping[str, int]
) -> tuple[list[Message], str]:
    """Put a stand-in for every added token that a message spells: its id between two seals.

    The seal is a run of a private-use character, longer than any that a message holds, so
    it cannot be forged.
    """
    typed = "".join(message["content"] for message in messages)
    seal = SEAL * (1 + max(map(len, re.findall(f"{SEAL}+", typed)), default=0))
    markers = [re.escape(text) for text in added if not text.isspace()]
    spelled = re.compile("|".join(markers) or "(?!)")

    def stand_in(found: re.Match[str]) -> str:
        return f"{seal}{added[found[0]]}{seal}"

    return [{**m, "content": spelled.sub(stand_in, m["content"])} for m in messages], seal

"""Messages → the model's chat format → token ids."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, cast

import torch
from transformers import BatchEncoding

from .models import LLM

DEFAULT_SYSTEM = "You are a helpful assistant."


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
    words = backend.pre_tokenizer.pre_tokenize_str(text)
    return [token.id for word, _ in words for token in backend.model.tokenize(word)]


def encode_chat(
    llm: LLM,
    messages: Sequence[Message],
    thinking: bool = False,
    render: RenderChat | None = None,
) -> list[int]:
    """Turn a conversation into the ids that the model was trained to answer.

    Only markers that the template writes become control ids. Whatever a message spells
    is text: transformers' sanitising sees to that, and is asked only where a message
    spells an added token, so all other ids are `apply_chat_template`'s to the last one.

    `thinking` is for templates that know `enable_thinking` (Qwen3); others ignore it.
    `render` takes the place of the model's template; see `render_chat`.
    """
    tokenizer = llm.tokenizer
    added = tokenizer.get_added_vocab()
    ids = tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        chat_template=None if render is None else _as_template(render, messages),
        add_generation_prompt=True,
        return_dict=False,
        sanitize_control_tokens=any(t in m["content"] for m in messages for t in added),
        enable_thinking=thinking,
    )
    return cast(list[int], ids)


def prepare_inputs(
    llm: LLM, prompt: str, system: str | None = None, thinking: bool = False
) -> BatchEncoding:
    """Make one prompt ready for `model(**inputs)`.

    Returns `input_ids` and `attention_mask`, both int64 `[1, T]`, on the model's device.
    """
    ids = encode_chat(llm, build_messages(prompt, system), thinking)
    input_ids = torch.tensor([ids], device=llm.device)  # [1, T]
    return BatchEncoding({"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)})


def _as_template(render: RenderChat, messages: Sequence[Message]) -> str:
    """Turn what `render` writes around the messages into a Jinja template for transformers.

    The function is called with a placeholder for each content, so that its own markers
    and the typed text stay apart, and sanitising treats both as with any template.
    """
    slots = [f"\x00{i}\x00" for i in range(len(messages))]
    rendered = render([{**m, "content": s} for m, s in zip(messages, slots, strict=True)])
    pieces = re.split(r"\x00(\d+)\x00", rendered)  # literal, number, literal, …
    if not set(slots) <= {f"\x00{number}\x00" for number in pieces[1::2]}:
        raise ValueError("render_chat left out the content of a message")
    return "".join(
        f"{{{{ messages[{piece}]['content'] }}}}" if i % 2 else f"{{{{ {piece!a} }}}}"
        for i, piece in enumerate(pieces)
    )

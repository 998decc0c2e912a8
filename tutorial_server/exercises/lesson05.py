"""Cases of lesson 05: the size of a cache, one step with it, the loop, and sharing it."""

import functools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, Qwen3Config

from ..decoding import generate_greedy
from ..memory import kv_cache_bytes
from ..runner import decode, prefill
from .compare import Diagnosis, close, equal, expect, gives, has_shape, instance, unpack
from .task import Stage, Task, Words, Wrong
from .tiny import MISCALLED, VOCABULARY, tiny_model

PROMPT = [5, 6, 7, 8]
ATOL = 1e-3  # between a step alone and a whole prompt; logits here are 1 to 10


@contextmanager
def _counted(model: Any) -> Iterator[list[int]]:
    """Note how many positions each forward pass reads, however the model is called."""
    read: list[int] = []
    inner, forward = model.model, model.model.forward  # what every way of calling leads to

    def noting(*args: Any, **kwargs: Any) -> Any:
        given = [*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds")]
        read.append(next(x.shape[1] for x in given if x is not None))
        return forward(*args, **kwargs)

    inner.forward = noting
    try:
        yield read
    finally:
        del inner.forward


def _logits(model: Any, ids: Sequence[int]) -> Tensor:
    """Logits for what follows `ids`, computed without any cache: `[1, V]`."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[:, -1]


def _read(model: Any, ids: Sequence[int] = PROMPT) -> Any:
    """A cache that holds `ids`."""
    return model(input_ids=torch.tensor([ids]), use_cache=True).cache


def _greedy(model: Any, ids: Sequence[int], count: int) -> list[int]:
    """The greedy answer of `count` tokens, computed the naive way."""
    whole = list(ids)
    for _ in range(count):
        whole.append(int(_logits(model, whole).argmax()))
    return whole[len(ids) :]


# kv_cache_bytes. All numbers differ and are mostly prime, so that each mistake has its own result.
class _Config(LlamaConfig):
    """A config that shows what counts, and what misleads."""

    def __repr__(self) -> str:
        names = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in (*names, "hidden_size"))
        return f"LlamaConfig({shown})"


def _config() -> LlamaConfig:
    return _Config(
        num_hidden_layers=5,
        num_attention_heads=12,
        num_key_value_heads=3,
        head_dim=7,
        hidden_size=60,
    )


def _qwen3_4b() -> Qwen3Config:
    return Qwen3Config(
        hidden_size=2560,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
    )


def _bytes_type(fn: Any) -> None:
    got = fn(_config(), 11, 4)
    general = f"The result is {type(got).__name__}. Bytes are counted whole: return an int."
    if isinstance(got, float):
        general = (
            "The result is a float. Bytes are counted whole, so nothing here needs a / "
            "(and asked for are bytes, not KB or GB)."
        )
    instance(got, int, "an int: a number of bytes", hint="" if got is None else general)


def _grows(fn: Any, small: tuple[int, int], large: tuple[int, int], times: int, hint: str) -> None:
    one, many = fn(_config(), *small), fn(_config(), *large)
    expect(
        many == times * one,
        hint,
        expected=Words(f"{times} × the {one} of tokens = {small[0]}, bytes_per_value = {small[1]}"),
        got=many,
    )


def _bytes_a_value(fn: Any) -> None:
    hint = (
        "Numbers of 4 bytes must take 4 times as much as numbers of 1 byte. Multiply by "
        "bytes_per_value, once, and by no fixed size."
    )
    _grows(fn, (11, 1), (11, 4), 4, hint)


def _bytes_a_token(fn: Any) -> None:
    hint = (
        "Twice the tokens must take twice the bytes: every token leaves its own keys and "
        "values, and nothing else is in the cache. Multiply by tokens, once."
    )
    _grows(fn, (11, 4), (22, 4), 2, hint)


def _bytes_measured(fn: Any) -> None:
    model = tiny_model()
    cache = _read(model, range(9))
    parts = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    held = sum(part.numel() * part.element_size() for part in parts)
    hint = "This is what a real cache holds: 2 layers, 2 key/value heads of size 8, 9 tokens."
    equal(fn(model.config, 9, 4), held, "bytes", hint)


KV_CACHE_BYTES = Task(
    name="kv_cache_bytes",
    lesson=5,
    minutes=5,
    difficulty="easy",
    statement="Say how many bytes the KV cache of a conversation takes.",
    solution=kv_cache_bytes,
    hints=(
        "Count the numbers that one token leaves behind: in each layer one key and one value, "
        "for each key/value head. Then tokens, then bytes a number. It is one product.",
        "In one layer keys are [B, K, S, D], and values are as many. B is 1 here, S is tokens, "
        "K is config.num_key_value_heads, D is config.head_dim.",
        "2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim is what "
        "one token leaves. Multiply it by tokens and by bytes_per_value.",
    ),
    stages=(
        Stage("type", "a whole number of bytes", _bytes_type),
        Stage("bytes a value", "4 bytes a number take 4 times as much as 1", _bytes_a_value),
        Stage("tokens", "twice the tokens take twice as much", _bytes_a_token),
        gives(
            "model",
            "2 × layers × key/value heads × head size",
            lambda fn: fn(_config(), 11, 4),
            9240,
            "bytes",
            "One token leaves 2 × layers × key/value heads × head size numbers: here 210.",
            (4620, "Exactly half. A token leaves a key *and* a value in each head: 2 numbers."),
            (18480, "Exactly twice as much. One key and one value a head: that 2 counts once."),
            (1848, "That is one layer. Every layer has a cache of its own: num_hidden_layers."),
            (3080, "That is one head a layer. There are num_key_value_heads of them."),
            (1320, "That is one number a key. A head's vector has head_dim of them."),
            (
                36960,
                "You count the query heads (num_attention_heads). Several of them share one "
                "key/value head, and only those are kept.",
            ),
            (
                6600,
                "You take hidden_size // num_attention_heads for the size of a head. It need "
                "not be that: config.head_dim says what it is.",
            ),
            (
                26400,
                "You count hidden_size numbers a key. A layer keeps key/value heads × head "
                "size numbers, and that is mostly less.",
            ),
            (73920, "Eight times too much: those are bits. bytes_per_value is in bytes already."),
        ),
        gives(
            "Qwen3-4B",
            "one token of Qwen3-4B in half precision: 147,456 bytes",
            lambda fn: fn(_qwen3_4b(), 1, 2),
            147_456,
            "bytes",
            "Right for one config and wrong for another: which number did you not take from it?",
        ),
        Stage("whole", "what a real cache of 9 tokens takes", _bytes_measured),
    ),
)


# decode. Every stage reads a prompt of 4 tokens, and gives the function one token more.
TOKEN = 9


def _step(fn: Any, model: Any = None, cache: Any = None) -> tuple[Any, Any]:
    model = model or tiny_model()
    got = fn(model, torch.tensor([[TOKEN]]), cache or _read(model))
    logits, cache = unpack(got, "logits", "cache")
    return logits, cache


def _decode_type(fn: Any) -> None:
    logits, cache = _step(fn)
    if hasattr(logits, "get_seq_length"):
        raise Wrong(
            "The two have changed places: logits first, then the cache.",
            expected=Words("(logits, cache)"),
            got=Words("(cache, logits)"),
        )
    instance(logits, Tensor, "a tensor", "logits")
    chosen = not logits.is_floating_point()
    expect(
        not chosen,
        "Your first value is a token that you have chosen. Return the logits; which token it "
        "is, the caller decides (lesson 04).",
        expected=Words("logits: float32 [1, V]"),
        got=logits,
    )
    hint = "The second value is to be the cache, for the next step."
    if cache is None:
        hint = "Your cache is None, so the next step would know nothing of this one."
    elif hasattr(cache, "logits"):
        hint = "You return all outputs in place of the cache. The cache is outputs.cache."
    expect(
        hasattr(cache, "get_seq_length"),
        hint,
        expected=Words("the model's cache"),
        got=Words(type(cache).__name__),
    )


def _decode_shape(fn: Any) -> None:
    logits, _ = _step(fn)
    general = f"logits have shape {list(logits.shape)}. [1, V] is asked for, V = {VOCABULARY}."
    three = (
        "logits have three dimensions, and the one for the position is still there. Take the "
        "last position: logits[:, -1]."
    )
    one = "logits have one dimension. Keep the batch: [1, V], not [V]."
    known = [(lambda t: t.dim() == 3, three), (lambda t: t.dim() == 1, one)]
    has_shape(logits, "logits", [1, VOCABULARY], general, *known)


def _decode_reads(fn: Any) -> None:
    model = tiny_model()
    cache = _read(model)
    with _counted(model) as read:
        _step(fn, model, cache)
    hint = "The model is to run once, on one position: the new token's."
    if len(read) > 1:
        hint = f"You call the model {len(read)} times. Keep its outputs, and take both from them."
    elif read and read[0] > 1:
        hint = f"You give the model {read[0]} tokens. The others are in the cache already."
    elif not read:
        hint = "You never call the model."
    expect(
        read == [1],
        hint,
        expected=Words("one forward pass, over 1 position"),
        got=Words(f"forward passes: {len(read)}, positions: {read}"),
    )


def _decode_remembers(fn: Any) -> None:
    model = tiny_model()
    logits, cache = _step(fn, model)
    if cache.get_seq_length() > len(PROMPT) + 1:
        raise Wrong(
            "Your function keeps a cache of its own between calls. Use the one that is given: "
            "the next call may belong to somebody else's conversation.",
            expected=Words(f"a cache of {len(PROMPT) + 1} positions"),
            got=Words(f"a cache of {cache.get_seq_length()} positions"),
        )
    hint = (
        "These are not the logits that follow the prompt and the token. Give the model the "
        "token and the cache, and nothing that contradicts them."
    )
    expected = _logits(model, [*PROMPT, TOKEN])
    close(logits, expected, "logits", hint, _decode_mistakes(model, expected), atol=ATOL)


def _decode_mistakes(model: Any, right: Tensor) -> list[Diagnosis]:
    token = torch.tensor([[TOKEN]])

    def step(**more: Any) -> Tensor:
        return model(input_ids=token, cache=_read(model), **more).logits[:, -1]

    shift = (
        "You tell the model a position for the token that is not its own. It follows "
        "the cache's 4 positions, 0 to 3, so it has position 4. Leave it out: the model counts."
    )
    wrongly = [step(position_ids=torch.tensor([[p]])) for p in (0, 1, 3, 5)]
    return [
        (
            _logits(model, [TOKEN]),
            "Your step sees nothing but the new token: the prompt is forgotten. Does the cache "
            "reach the model?",
        ),
        (right.softmax(dim=-1), "These are probabilities. Return the logits as they are."),
        (right.log_softmax(dim=-1), "These are log-probabilities. Return the logits as they are."),
        (
            step(attention_mask=torch.ones(1, len(PROMPT))),
            "Your attention mask is as long as the cache alone. It must be one longer; "
            "without padding, leave it out.",
        ),
        (
            step(attention_mask=torch.ones(1, 1)),
            "Your attention mask covers the new token only, and so hides the prompt. It must be "
            "as long as cache and token together; without padding, leave it out.",
        ),
        *((wrong, shift) for wrong in wrongly),
    ]


def _decode_grows(fn: Any) -> None:
    _, cache = _step(fn)
    before, now = len(PROMPT), cache.get_seq_length()
    hint = f"The cache held {before} positions, and one more is to come: the new token's."
    if now == before:
        hint = (
            "The cache that you return lacks the new token: the next step would not know of it. "
            "Return the one that the model gives back."
        )
    elif now == 0:
        hint = "The cache that you return is empty. Return the one that has grown."
    elif now == 1:
        hint = (
            "The cache that you return holds the new token alone: the prompt would be lost in "
            "the next step. Return the one that has grown."
        )
    expect(
        now == before + 1,
        hint,
        expected=Words(f"a cache of {before + 1} positions"),
        got=Words(f"a cache of {now} position{'s' * (now != 1)}"),
    )


def _decode_steps(fn: Any) -> None:
    model = tiny_model()
    cache, ids = _read(model), list(PROMPT)
    for token in (9, 10, 11, 9, 12):
        ids.append(token)
        logits, cache = fn(model, torch.tensor([[token]]), cache)
        hint = f"The first step is right, the one with {len(ids)} tokens is not. What has changed?"
        close(logits, _logits(model, ids), "logits", hint, atol=ATOL)


def _decode_two(fn: Any) -> None:
    model = tiny_model()
    one, two = list(PROMPT), [20, 21]
    caches = [_read(model, one), _read(model, two)]
    for token in (9, 10):
        for place, ids in enumerate((one, two)):
            ids.append(token)
            logits, caches[place] = fn(model, torch.tensor([[token]]), caches[place])
            hint = (
                "Two conversations take turns, and yours mixes them up. All that a step knows "
                "must come from its arguments: keep nothing between calls."
            )
            close(logits, _logits(model, ids), "logits", hint, atol=ATOL)


DECODE = Task(
    name="decode",
    lesson=5,
    minutes=5,
    difficulty="easy",
    statement="Extend a conversation by one token, at the price of one token.",
    solution=decode,
    hints=(
        "Give the model two things: the one new token, and the cache with all that came before. "
        "It adds the token to the cache by itself.",
        "token is [1, 1], and so outputs.logits is [1, 1, V]. Return [1, V]: the last position. "
        "The grown cache is outputs.cache.",
        "outputs = model(input_ids=token, cache=cache, use_cache=True); what is asked for is "
        "outputs.logits[:, -1] and outputs.cache.",
    ),
    stages=(
        Stage("type", "logits and a cache", _decode_type, MISCALLED),
        Stage("shape", "logits [1, V]", _decode_shape),
        Stage("price", "one forward pass, over one position", _decode_reads),
        Stage("memory", "the step knows what came before", _decode_remembers),
        Stage("cache", "the cache is one position longer", _decode_grows),
        Stage("steps", "five steps in a row", _decode_steps),
        Stage("turns", "two conversations in turn", _decode_two),
    ),
)


# generate_greedy. The tiny model's greedy answer to PROMPT has no token twice in its first ten.
UNUSED = (0, VOCABULARY - 1)  # ids that the answer does not hold, below and above all that it does


@functools.cache
def _right() -> list[int]:
    """The first ten ids of the answer, computed the naive way."""
    return _greedy(tiny_model(), PROMPT, 10)


def _answer(fn: Any, count: int, stop_ids: Collection[int] = frozenset()) -> Any:
    return fn(tiny_model(), torch.tensor([PROMPT]), count, stop_ids)


def _greedy_type(fn: Any) -> None:
    got = _answer(fn, 3)
    hint = ""
    if isinstance(got, Tensor):
        hint = "Your function returns a tensor. A list of ints is asked for: int(token) makes one."
    instance(got, list, "a list of token ids", hint=hint)
    for value in got:
        expect(
            type(value) is int,
            "Your list holds tensors or other things that are no int. Append int(token).",
            expected=Words("a list of ints"),
            got=Words(f"a list that holds a {type(value).__name__}"),
        )


def _greedy_limit(fn: Any) -> None:
    for count in (4, 1):
        got = _answer(fn, count)
        hint = f"{count} tokens are asked for and nothing ends the turn, but {len(got)} came."
        if got[: len(PROMPT)] == PROMPT:
            hint = "Your list begins with the prompt. Return the answer's ids alone."
        elif len(got) == count + 1:
            hint = (
                f"One token more than the limit of {count}. The prefill's token counts as "
                "well: ask how many there are after each."
            )
        elif len(got) == count - 1:
            hint = (
                f"One token fewer than the limit of {count}. The prefill alone gives the first "
                "token, and each decode one more."
            )
        expect(len(got) == count, hint, expected=Words(f"{count} ids"), got=got)


def _greedy_tokens(fn: Any) -> None:
    got, right = _answer(fn, 6), _right()
    model = tiny_model()
    alone = right[:1]
    while len(alone) < 6:
        alone.append(int(_logits(model, alone[-1:]).argmax()))
    hint = "The right number of ids, but not the greedy ones: argmax of the logits, each time."
    known: list[Diagnosis] = [
        (right[1:7], "The first token is missing. The prefill's logits choose it."),
        ([right[0], *right[:5]], "The first token comes twice. Append each token once."),
        (alone, "The first token is right, then it goes astray: the cache is not passed on."),
        (
            lambda ids: ids[0] == right[0] and len(set(ids)) == 1,
            "It is always the first token. Choose from the logits of the newest step.",
        ),
        (
            lambda ids: ids[:2] == right[:2],
            "It begins well, then goes astray. Hand decode the newest token, and the newest cache.",
        ),
    ]
    equal(got, right[:6], "ids", hint, known)


def _greedy_stop(fn: Any) -> None:
    right = _right()
    got = _answer(fn, 6, {right[3]})
    if got == right[:6] and _answer(fn, 6, [right[3]]) == right[:3]:
        hint = (
            "Your answer runs past the stop id. You ask whether a tensor is in stop_ids, and a "
            "set never finds one: ask about int(token)."
        )
        raise Wrong(hint, expected=right[:3], got=got)
    known: list[Diagnosis] = [
        (right[:4], "Your answer holds the stop id. It is a signal, not a part of the answer."),
        (
            right[:6],
            "Your answer runs past the stop id, until the limit. Ask after each token whether it "
            "is in stop_ids.",
        ),
        (
            right[:2],
            "The token before the stop id is lost. Only the stop id itself is left out.",
        ),
    ]
    equal(got, right[:3], "ids", f"The id {right[3]} ends the turn here.", known)


def _greedy_any(fn: Any) -> None:
    right = _right()
    hint = "More than one id can end a turn, and any of them does."
    one = (
        "Your answer runs past a stop id: you look at one of them only. Models end a turn with "
        "any of several; ask whether the token is in stop_ids."
    )
    for unused in UNUSED:
        got = _answer(fn, 6, {unused, right[2]})
        equal(got, right[:2], "ids", hint, [(right[:6], one)])
    got = _answer(fn, 6, {right[4], right[2]})
    equal(got, right[:2], "ids", hint, [(right[:4], one)])


def _greedy_at_once(fn: Any) -> None:
    right = _right()
    got = _answer(fn, 6, {right[0]})
    known: list[Diagnosis] = [
        (right[:1], "The first token ends the turn, and yours puts it into the answer."),
        (right[:6], "The first token ends the turn here, and yours never looks at that one."),
    ]
    equal(got, [], "ids", "The first token ends the turn here: the answer is empty.", known)


def _greedy_passes(fn: Any) -> None:
    model, right = tiny_model(), _right()
    many = (
        "One forward pass too many: after the last token the model runs again, and nobody looks "
        "at what comes of it. Ask whether it is over before you decode."
    )
    cases: tuple[tuple[str, int, set[int], int], ...] = (
        ("a limit of 5", 5, set(), 5),
        ("a stop id as the fourth token", 8, {right[3]}, 4),
    )
    for name, count, stop_ids, passes in cases:
        with _counted(model) as read:
            fn(model, torch.tensor([PROMPT]), count, stop_ids)
        hint = "Each token costs one forward pass: the prompt once, then one position each."
        if len(read) == passes and read[1] > 1:
            hint = "You read everything anew for each token. Read the prompt once, then decode."
        elif read[:2] == [len(PROMPT)] * 2:
            hint = "You read the prompt twice. One prefill gives the first logits and the cache."
        elif len(read) == passes + 1:
            hint = many
        expect(
            read == [len(PROMPT)] + [1] * (passes - 1),
            hint,
            expected=Words(f"{name}: {passes} passes, {[len(PROMPT)] + [1] * (passes - 1)}"),
            got=Words(f"{name}: {len(read)} passes, {read} positions read"),
        )


def _greedy_whole(fn: Any) -> None:
    model = tiny_model(seed=1)
    prompt = [40, 41, 42]
    right = _greedy(model, prompt, 24)
    hint = "The short answers are right, the long one is not. What changes after some tokens?"
    equal(fn(model, torch.tensor([prompt]), 24, frozenset()), right, "ids", hint)


_A_SET = (
    (
        TypeError,
        "not subscriptable",
        "stop_ids is a set and has no first one. Ask whether the token is in it.",
    ),
)

GENERATE_GREEDY = Task(
    name="generate_greedy",
    lesson=5,
    minutes=15,
    difficulty="medium",
    statement="Write a whole answer: prefill, then decode until the turn or the limit ends it.",
    solution=generate_greedy,
    hints=(
        "Prefill gives logits and a cache. Then go round: choose a token; is it a stop id? then "
        "it is over. Keep it; are these enough? then it is over. Only now decode.",
        "logits [1, V] → token = logits.argmax(dim=-1, keepdim=True), [1, 1], which is what "
        "decode takes. int(token) is what the list takes and what stop_ids is asked about.",
        "In `while True:` five steps: token = …argmax…; `if int(token) in stop_ids: return ids`; "
        "ids.append(int(token)); `if len(ids) == max_new_tokens: return ids`; logits, cache = "
        "decode(model, token, cache).",
    ),
    stages=(
        Stage("type", "a list of ints", _greedy_type, MISCALLED),
        Stage("limit", "max_new_tokens ids where nothing ends the turn", _greedy_limit),
        Stage("tokens", "the most probable token each time", _greedy_tokens),
        Stage("stop", "a stop id ends the answer, and is not in it", _greedy_stop, _A_SET),
        Stage(
            "any stop id",
            "there may be several, and any of them ends it",
            _greedy_any,
            raises=_A_SET,
        ),
        Stage(
            "at once",
            "the first token may end the turn",
            _greedy_at_once,
            raises=(
                (
                    UnboundLocalError,
                    "",
                    "The first token ends the turn here, and something that you set only for "
                    "tokens that are kept is used all the same.",
                ),
                (
                    IndexError,
                    "",
                    "The first token ends the turn here, so your list is empty: it has no first "
                    "and no last token.",
                ),
            ),
        ),
        Stage("price", "one forward pass a token, and none for nothing", _greedy_passes),
        Stage("whole", "24 tokens of another model", _greedy_whole),
    ),
)


# The bug hunt. What a learner is given lets all continuations write into one cache.
def continue_from(model: Any, input_ids: Tensor, first_tokens: list[int], count: int) -> list[Any]:
    """Continue one prompt in several ways: greedy, but with each first token given.

    `input_ids [1, T]` → for each first token a list of `count` ids that begins with it.
    """
    _, prompt_cache = prefill(model, input_ids)
    answers = []
    for first in first_tokens:
        cache = deepcopy(prompt_cache)  # decode writes into it
        ids = [first]
        while len(ids) < count:
            token = torch.tensor([ids[-1:]], device=input_ids.device)  # [1, 1]
            logits, cache = decode(model, token, cache)
            ids.append(int(logits.argmax()))
        answers.append(ids)
    return answers


def _ways(firsts: Sequence[int], count: int) -> list[list[int]]:
    """Each way by itself, computed without a cache."""
    model = tiny_model()
    return [[first, *_greedy(model, [*PROMPT, first], count - 1)] for first in firsts]


def _shared(firsts: Sequence[int], count: int) -> list[list[int]]:
    """What comes of one cache for all: each way sees the ones before it."""
    model, seen, answers = tiny_model(), list(PROMPT), []
    for first in firsts:
        answer = [first, *_greedy(model, [*seen, first], count - 1)]
        answers.append(answer)
        seen += answer[:-1]
    return answers


def _continue(fn: Any, firsts: list[int], count: int) -> Any:
    return fn(tiny_model(), torch.tensor([PROMPT]), firsts, count)


def _continue_type(fn: Any) -> None:
    got = _continue(fn, [10], 4)
    instance(got, list, "a list of lists of ids")
    fits = [len(ids) for ids in got] == [4] and got[0][0] == 10
    hint = "For each first token one list, which begins with it and is `count` long."
    expect(fits, hint, expected=Words("one list of 4 ids, of which the first is 10"), got=got)


def _continue_all(fn: Any, firsts: list[int], count: int, hint: str) -> None:
    got = _continue(fn, firsts, count)
    known: list[Diagnosis] = [
        (
            _shared(firsts, count),
            "The first continuation is right, and each later one depends on those before it, "
            "although they are to know nothing of each other. What have they in common?",
        ),
        (
            lambda answers: len(answers) != len(firsts),
            "One continuation for each first token, in their order.",
        ),
        (
            lambda answers: [a[:1] for a in answers] == [[first] for first in firsts],
            "Each begins with its first token, but does not continue as it would alone. What "
            "does the model know at the start of each: the prompt, all of it, and nothing more?",
        ),
    ]
    equal(got, _ways(firsts, count), "continuations", hint, known)


CONTINUE_FROM = Task(
    name="continue_from",
    lesson=5,
    minutes=10,
    difficulty="medium",
    statement="Mend a function that continues one prompt in several ways.",
    solution=continue_from,
    hunt=True,
    hints=(
        "Print cache.get_seq_length() at the beginning of each continuation. What should it be, "
        "and what is it?",
        "A prompt of T tokens leaves a cache of T positions, and every continuation must begin "
        "with just these. `past = cache` copies nothing: it is a second name for one object, "
        "into which decode writes.",
        "Give each continuation a cache of its own: copy.deepcopy(cache) inside the loop over "
        "first_tokens. (Or read the prompt again there, which costs a prefill each time.)",
    ),
    stages=(
        Stage("type", "one list for each first token", _continue_type),
        Stage(
            "alone",
            "one continuation by itself",
            lambda fn: _continue_all(fn, [10], 6, "Even a single continuation is not greedy now."),
        ),
        Stage(
            "two",
            "a second one, which knows nothing of the first",
            lambda fn: _continue_all(fn, [10, 30], 6, "Both as they would be alone."),
        ),
        Stage(
            "whole",
            "four, one of them twice",
            lambda fn: _continue_all(fn, [30, 10, 77, 30], 5, "All as they would be alone."),
        ),
    ),
)

TASKS = (KV_CACHE_BYTES, DECODE, GENERATE_GREEDY, CONTINUE_FROM)

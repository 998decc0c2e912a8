"""Cases of lesson 03: one forward pass, the row that counts, and probabilities as logarithms."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..logits import answer_log_prob, last_logits, log_probs
from ..padding import position_ids
from ..runner import prefill
from .compare import Diagnosis, close, expect, gives, has_shape, same, tensor, unpack
from .task import Stage, Task, Words, Wrong
from .tiny import MISCALLED, tiny_model


def _floats(got: Any, what: str, hint: str) -> None:
    """Ask for a tensor of real numbers, in whichever precision."""
    tensor(got, what)
    expect(got.is_floating_point(), hint, expected=Words(f"{what}: float"), got=got)


# last_logits. The pads' scores are the largest, so that whatever mixes them in shows.
SCORES = torch.tensor(
    [
        [[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]],
        [[4.0, -4.0], [5.0, -5.0], [6.0, -6.0]],
    ]
)  # [B, T, V] = [2, 3, 2]
FULL = torch.tensor([[1, 1, 1], [1, 1, 1]])
RIGHT = torch.tensor([[1, 1, 1], [1, 1, 0]])
LEFT = torch.tensor([[0, 1, 1], [1, 1, 1]])


def _last_type(fn: Any) -> None:
    places = "You return places, not scores. Take the scores that stand there: logits[row, place]."
    _floats(fn(SCORES, FULL), "the result", places)


def _last_shape(fn: Any) -> None:
    got = fn(SCORES, FULL)
    general = f"The shape is {list(got.shape)}. One row of V = 2 scores for each of B = 2 rows."
    squares = (
        "You pick the places of all rows from every row: [B, B, V]. Give the numbers of the rows "
        "as well, so that row 0 goes with place 0 and row 1 with place 1."
    )
    kept = "The dimension of places is still there: [B, 1, V]. Each row has one place; drop it."
    known = [
        (lambda t: list(t.shape) == [2, 2, 2], squares),
        (lambda t: list(t.shape) == [2, 1, 2], kept),
        (lambda t: list(t.shape) == [2], "There is one row for all. Give each row its own."),
    ]
    has_shape(got, "the result", [2, 2], general, *known)


def _last_edges(fn: Any) -> None:
    for scores, mask in ((SCORES[:1], RIGHT[1:]), (SCORES[1:, :1], FULL[:1, :1])):
        got = fn(scores, mask)
        lost = "With one row a dimension gets lost (squeeze?). The result is [1, V] there."
        has_shape(got, "the result", [1, 2], lost)
        close(got, last_logits(scores, mask), "the result", "One row alone comes out wrong.")


def _last_whole(fn: Any) -> None:
    scores = torch.arange(60.0).reshape(4, 5, 3)
    lengths = torch.tensor([[5], [2], [1], [4]])
    for mask in (torch.arange(5) < lengths, torch.arange(5) >= 5 - lengths):
        mask = mask.long()
        general = "Two rows come out right, four of other lengths do not."
        close(fn(scores, mask), last_logits(scores, mask), "the result", general)


LAST_LOGITS = Task(
    name="last_logits",
    lesson=3,
    minutes=10,
    difficulty="medium",
    statement="Pick each row's scores for its next token, on whichever side it is padded.",
    solution=last_logits,
    hints=(
        "Each row needs the number of its last column that holds a real token. The mask tells: "
        "the last place with a 1. Counting the 1s is not enough where pads stand in front.",
        "logits [B, T, V], mask [B, T] → places [B] → result [B, V]. Number the columns 0 to "
        "T - 1; multiplied by the mask, the pads' numbers become 0.",
        "columns = torch.arange(T); last = (columns * mask).amax(dim=-1) is [B]. Then index with "
        "two lists of the same length: logits[torch.arange(B), last].",
    ),
    stages=(
        Stage(
            "type",
            "a tensor of scores",
            _last_type,
            raises=(
                (
                    IndexError,
                    "out of bounds",
                    "An index is out of range: you take the number of real tokens for the place of "
                    "the last. Of three places the last has number 2.",
                ),
            ),
        ),
        Stage("shape", "[B, V]", _last_shape),
        gives(
            "no pads",
            "the last column where nothing is padded",
            lambda fn: fn(SCORES, FULL),
            [[3, -3], [6, -6]],
            "the result",
            "Without pads each row's last column counts.",
            (
                [[1, -1], [4, -4]],
                "You take the first token's scores. They know nothing of the rest of the prompt.",
            ),
            (
                [[6, -6], [15, -15]],
                "You add up the scores of all places. Only those at one place count.",
            ),
            ([[2, -2], [5, -5]], "You average, or are one too early. Take the last place alone."),
            (
                [[3, -1], [6, -4]],
                "You take the highest score over all places. Only those at the last token count.",
            ),
        ),
        gives(
            "right pads",
            "pads behind the tokens",
            lambda fn: fn(SCORES, RIGHT),
            [[3, -3], [5, -5]],
            "the result",
            "The second row has a pad at its end; its last real token is the one before.",
            (
                [[3, -3], [6, -6]],
                "You always take the last column. In the second row that is a pad, and says what "
                "comes after padding. Ask the mask.",
            ),
            ([[3, -3], [2, -2]], "You take all scores from row 0. Each row has its own."),
            (
                [[2, -2], [5, -5]],
                "All rows get the same place. The first row is longer than the second.",
            ),
        ),
        gives(
            "left pads",
            "pads in front of the tokens",
            lambda fn: fn(SCORES, LEFT),
            [[3, -3], [6, -6]],
            "the result",
            "With pads in front all rows end in the last column.",
            (
                [[2, -2], [6, -6]],
                "You count the real tokens, and take that as the place. It is right only where "
                "no pads stand in front. Look for the last 1 instead.",
            ),
            (
                [[2, -2], [4, -4]],
                "You find the first 1 of the mask. The last one is asked for.",
            ),
        ),
        Stage("edges", "one row alone, one token alone", _last_edges),
        Stage("whole", "four rows of different lengths, padded on either side", _last_whole),
    ),
)

# prefill. A tiny random model, made anew for each stage.
PROMPT = torch.tensor([[72, 101, 33, 10]])
T, V = PROMPT.shape[1], 272
WITH_CONTROL_IDS = torch.tensor([[0, 268, 72, 266, 0, 101]])


def _all_logits(ids: Tensor, **options: Any) -> Tensor:
    """The tiny model's own scores at every token, [T, V]."""
    logits: Tensor = tiny_model()(input_ids=ids, **options).logits[0]
    return logits


def _prefill_type(fn: Any) -> None:
    logits, cache = unpack(fn(tiny_model(), PROMPT), "logits", "cache")
    expect(
        isinstance(logits, Tensor) or not isinstance(cache, Tensor),
        "Yours come in the other order: first the logits, then the cache.",
        expected=Words("(logits, cache)"),
        got=Words("(cache, logits)"),
    )
    chosen = "You return a token that is already chosen. Return the scores; sampling comes later."
    _floats(logits, "logits", chosen)


def _prefill_shape(fn: Any) -> None:
    logits, _ = fn(tiny_model(), PROMPT)
    general = f"logits has shape {list(logits.shape)}. One row of scores is asked for: [1, {V}]."
    known = [
        (
            lambda t: list(t.shape) == [1, T, V],
            "You return the scores at all tokens, [1, T, V]. Only those at the last are needed.",
        ),
        (
            lambda t: list(t.shape) == [1, 1, V],
            "The dimension of tokens is still there: [1, 1, V]. Index it with -1, not with -1:.",
        ),
        (
            lambda t: list(t.shape) == [V],
            "The dimension of the batch got lost: [V]. Write logits[:, -1], not logits[0, -1].",
        ),
        (
            lambda t: list(t.shape) == [T, V],
            "You index the batch, not the tokens: [T, V]. Tokens are the second dimension.",
        ),
    ]
    has_shape(logits, "logits", [1, V], general, *known)


def _tokens_in(cache: Any) -> int:
    """How many tokens a cache holds; -1 for what is no cache."""
    try:
        return int(cache.get_seq_length())
    except Exception:
        return -1


def _length_hint(found: int) -> str:
    if found < 0:
        return "That is no cache that a model can go on with. Hand on outputs.cache as it came."
    if found == 0:
        return "Your cache is empty: the model never saw it. Hand on the one in the outputs."
    if found == T - 1:
        return "Your cache lacks the prompt's last token. Read the whole prompt in one pass."
    if found == T + 1:
        return "Your cache holds a token more than the prompt. Only read; decode adds tokens later."
    if found % T == 0:
        return (
            "Your cache still holds the tokens of an earlier call. Every prompt needs a new one; "
            "a default argument, or a name outside the function, is made only once."
        )
    return f"Your cache holds {found} tokens, and the prompt has {T}."


def _prefill_cache(fn: Any) -> None:
    _, cache = fn(tiny_model(), PROMPT)
    expect(
        cache is not None,
        "Your cache is None: the model was told to keep nothing. Call it with use_cache=True.",
        expected=Words("the keys and values of all tokens"),
        got=None,
    )
    found = _tokens_in(cache)
    got = Words(f"a cache of {found} tokens" if found >= 0 else type(cache).__name__)
    expected = Words(f"a cache of {T} tokens")
    expect(found == T, _length_hint(found), expected=expected, got=got)


def _is(right: Tensor) -> Any:
    """A predicate for logits that agree with `right` up to rounding."""
    return lambda got: same(got[0], right, atol=1e-3)


def _prefill_row(fn: Any) -> None:
    every = _all_logits(PROMPT)  # [T, V]
    last = every[-1]
    logits, _ = fn(tiny_model(), PROMPT)
    general = "These are not the scores that the model gives after the prompt's last token."
    known: list[Diagnosis] = [
        (_is(every[0]), "You take the scores after the first token. The last one's count."),
        (_is(every[-2]), "You take the scores at the last token but one, so they predict the end."),
        (_is(every.mean(dim=0)), "You average over all tokens. Only the last one's scores count."),
        (_is(every.sum(dim=0)), "You add up all tokens. Only the last one's scores count."),
        (_is(every.amax(dim=0)), "You take the highest over all tokens. Take the last one alone."),
        (
            _is(last.softmax(dim=-1)),
            "You return probabilities. Sampling wants logits: leave the softmax to it.",
        ),
        (
            _is(last.log_softmax(dim=-1)),
            "You return log-probabilities. Hand on the logits as the model gave them.",
        ),
    ]
    close(logits, last[None], "logits", general, known, atol=1e-3)


def _hiding(id_: int) -> tuple[Tensor, Tensor]:
    """Last logits of a model that takes an id for a pad, with positions by column and by mask."""
    mask = WITH_CONTROL_IDS.ne(id_).long()
    by_column = _all_logits(WITH_CONTROL_IDS, attention_mask=mask)
    counted = position_ids(mask)
    by_mask = _all_logits(WITH_CONTROL_IDS, attention_mask=mask, position_ids=counted)
    return by_column[-1], by_mask[-1]


def _prefill_control_ids(fn: Any) -> None:
    logits, _ = fn(tiny_model(), WITH_CONTROL_IDS)
    general = "With ids that may also serve as pads (0, 266, 268), yours are other scores."
    ignores = (
        "You hide tokens from the model because of their id. Nothing is padded here: every id "
        "of a prompt is a real token, 0 and the pad's own id included."
    )
    known = [(_is(hiding), ignores) for id_ in (0, 266, 268) for hiding in _hiding(id_)]
    expected = _all_logits(WITH_CONTROL_IDS)[-1:]
    close(logits, expected, "logits", general, known, atol=1e-3)


def _prefill_once(fn: Any) -> None:
    model, passes = tiny_model(), []
    model.get_input_embeddings().register_forward_hook(lambda *_: passes.append(1))
    fn(model, PROMPT)
    ran = len(passes)
    expected, got = Words("1 forward pass"), Words(f"{ran} forward passes")
    hint = f"Your function runs the model {ran} times. One pass gives the logits and the cache."
    if not ran:
        hint = "Your function never runs the model: it gives what it has kept."
    if ran == T:
        hint = (
            "You read token by token, one pass each. The point of prefill is to read all of the "
            "prompt in a single pass."
        )
    expect(ran == 1, hint, expected=expected, got=got)


def _prefill_onward(fn: Any) -> None:
    token = torch.tensor([[120]])
    model = tiny_model()
    _, cache = fn(model, PROMPT)
    hint = (
        "Going on from your cache gives other scores than reading everything anew. Hand on the "
        "cache of the very pass that read the prompt, untouched."
    )
    try:
        onward = model(input_ids=token, cache=cache, use_cache=True).logits[:, -1]
    except Exception as error:
        raise Wrong(hint, got=Words(f"the model raised {type(error).__name__}")) from None
    anew = _all_logits(torch.cat([PROMPT, token], dim=1))[-1:]
    shifted = torch.tensor([[1, 2, 3, 4, 4]])  # what decode adds has its right position
    counted = _all_logits(torch.cat([PROMPT, token], dim=1), position_ids=shifted)[-1]
    one = (
        "You count positions from 1, so the next token gets the last one's again. The first has "
        "position 0; leave them out, and the model counts."
    )
    close(onward, anew, "logits of the next token", hint, [(_is(counted), one)], atol=1e-3)


def _prefill_whole(fn: Any) -> None:
    model = tiny_model(seed=1)
    for ids in (torch.tensor([[7]]), torch.tensor([[9, 8, 7, 6, 5, 4, 3, 2, 1]])):
        logits, cache = unpack(fn(model, ids), "logits", "cache")
        lost = "With a prompt of one token a dimension gets lost (squeeze?): [1, V] is asked for."
        has_shape(logits, "logits", [1, V], lost)
        expect(
            _tokens_in(cache) == ids.shape[1],
            "The cache must hold as many tokens as the prompt, whatever its length.",
            expected=Words(f"a cache of {ids.shape[1]} tokens"),
            got=Words(f"a cache of {_tokens_in(cache)} tokens"),
        )
        expected = model(input_ids=ids).logits[:, -1]
        general = "With another model yours gives other scores. Use the model that you are given."
        close(logits, expected, "logits", general, atol=1e-3)


PREFILL = Task(
    name="prefill",
    lesson=3,
    minutes=10,
    difficulty="medium",
    statement="Read the whole prompt in one forward pass: last logits, and the cache.",
    solution=prefill,
    hints=(
        "Call the model once, with all ids. What it returns has the scores and the cache on "
        "board. Of the scores you need those at the last token, of the cache all.",
        "outputs.logits is [1, T, V], or [1, 1, V] with logits_to_keep=1; return [1, V]. "
        "outputs.cache is handed on as it is.",
        "outputs = model(input_ids=input_ids, use_cache=True, logits_to_keep=1), and the two "
        "values are outputs.logits[:, -1] and outputs.cache.",
    ),
    stages=(
        Stage("type", "logits, a float tensor, and a cache", _prefill_type, MISCALLED),
        Stage("shape", "logits [1, V]", _prefill_shape),
        Stage("cache", "a cache of the whole prompt, and of nothing else", _prefill_cache),
        Stage("row", "the scores after the last token", _prefill_row),
        Stage("any id", "every id is a real token", _prefill_control_ids),
        Stage("one pass", "the model runs once", _prefill_once),
        Stage("onward", "the next token goes on from the cache", _prefill_onward),
        Stage("whole", "another model, a prompt of one token and one of nine", _prefill_whole),
    ),
)

# log_probs. ln 3 = 1.0986: a score that much higher is three times as probable.
QUARTERS = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])  # [2, 2]
HALF, QUARTER, MOST = math.log(0.5), math.log(0.25), math.log(0.75)


def _log_type(fn: Any) -> None:
    _floats(fn(QUARTERS), "the result", "Logarithms are no whole numbers; keep the float tensor.")


def _log_shape(fn: Any) -> None:
    for shape in ([2, 2], [2, 3, 4]):
        got = fn(torch.zeros(shape))
        general = f"The shape is {list(got.shape)}. It stays as it is: {shape}."
        has_shape(got, "the result", shape, general)


def _log_any_dimensions(fn: Any) -> None:
    logits = torch.tensor([[[1.0, 2.0, 4.0], [0.0, 0.0, 3.0]], [[5.0, -5.0, 0.0], [2.0, 2.0, 2.0]]])
    hint = (
        "With [2, 2, 3] yours normalises along another dimension. The vocabulary is always the "
        "last one: dim=-1."
    )
    close(fn(logits), log_probs(logits), "the result", hint)
    one = torch.tensor([0.0, math.log(3)])
    close(fn(one), [QUARTER, MOST], "the result", "A single row, [V], comes out wrong.")


def _has_nan(got: Tensor) -> bool:
    return bool(got.isnan().any())


LOG_PROBS = Task(
    name="log_probs",
    lesson=3,
    minutes=10,
    difficulty="medium",
    statement="Turn logits into log-probabilities that neither overflow nor vanish.",
    solution=log_probs,
    hints=(
        "log(eˣ / sum) is x - log(sum): no division, and no logarithm of a tiny number. Before "
        "raising e to anything, take the row's maximum off all its logits.",
        "logits [..., V] → maxima [..., 1] → shifted [..., V] → sums [..., 1] → result [..., V]. "
        "dim=-1, keepdim=True keeps the 1.",
        "shifted = logits - logits.max(dim=-1, keepdim=True).values. From it take "
        "shifted.exp().sum(dim=-1, keepdim=True).log().",
    ),
    stages=(
        Stage("type", "a float tensor", _log_type),
        Stage(
            "shape",
            "as it was",
            _log_shape,
            raises=(
                (
                    RuntimeError,
                    "must match the size",
                    "The rows' sums don't line up with the rows. keepdim=True keeps a dimension "
                    "of 1, so that each sum goes with its own row.",
                ),
            ),
        ),
        gives(
            "values",
            "logarithms of a quarter and of three quarters",
            lambda fn: fn(QUARTERS[:1]),
            [[QUARTER, MOST]],
            "the result",
            "0 and ln 3 mean a quarter and three quarters; their logarithms are asked for.",
            ([[0.25, 0.75]], "You return the probabilities. Their logarithms are asked for."),
            (
                [[math.log2(0.25), math.log2(0.75)]],
                "Your logarithms have base 2. The natural one is asked for: log.",
            ),
            (
                [[math.log10(0.25), math.log10(0.75)]],
                "Your logarithms have base 10. The natural one is asked for: log.",
            ),
            ([[-QUARTER, -MOST]], "The sign is wrong: logarithms of numbers below 1 are negative."),
            (
                [[-4.0, math.log(3) - 4]],
                "You take off the sum of the powers. Take off its logarithm.",
            ),
            (
                [[-math.log(3), 0.0]],
                "You only take off the maximum. The powers must also add up to 1: take off the "
                "logarithm of their sum.",
            ),
            ([[0, 0]], "You normalise along the rows, dim=0. A row is a distribution: dim=-1."),
            (
                [[math.log(0.5), math.log(0.75)]],
                "You look at each score alone (sigmoid). They share one probability of 1.",
            ),
            atol=1e-4,
        ),
        gives(
            "rows",
            "each row for itself",
            lambda fn: fn(QUARTERS),
            [[QUARTER, MOST], [HALF, HALF]],
            "the result",
            "Each row is a distribution of its own.",
            (
                QUARTERS - QUARTERS.flatten().logsumexp(dim=0),
                "You add up the powers of all rows together. Each row has its own sum: "
                "sum(dim=-1, keepdim=True).",
            ),
            atol=1e-4,
        ),
        Stage("dimensions", "the last dimension, however many there are", _log_any_dimensions),
        gives(
            "large",
            "logits of 1000 overflow nothing",
            lambda fn: fn(torch.tensor([[1000.0, 1000.0]])),
            [[HALF, HALF]],
            "the result",
            "Two equal logits are a half each, however large.",
            (
                lambda got: _has_nan(got) or bool(got.isinf().any()),
                "Raising e to 1000 overflows. Take the row's maximum off all logits first; the "
                "probabilities stay the same.",
            ),
            atol=1e-4,
        ),
        gives(
            "rows far apart",
            "each row has a maximum of its own",
            lambda fn: fn(torch.tensor([[0.0, 0.0], [1000.0, 1000.0]])),
            [[HALF, HALF], [HALF, HALF]],
            "the result",
            "You take the maximum of all rows off each, and the powers of a row far below it "
            "become 0. Each row has its own: max(dim=-1, keepdim=True).",
            atol=1e-4,
        ),
        gives(
            "far apart",
            "a tiny probability keeps its logarithm",
            lambda fn: fn(torch.tensor([[0.0, -200.0]])),
            [[0.0, -200.0]],
            "the result",
            "The second is e⁻²⁰⁰ as probable as the first, so its logarithm is −200.",
            (
                [[0.0, -math.inf]],
                "You take the logarithm of a probability that was rounded to 0. Subtract "
                "logarithms instead of dividing: x - log(sum).",
            ),
            (
                lambda got: bool(got[0, 0].isinf()),
                "Logits that lie far apart still overflow: take off the row's maximum, not its "
                "minimum or its mean, so that none is above 0.",
            ),
            (
                lambda got: -150 < float(got[0, 1]) < -5,
                "You add a small number before the logarithm, and with it every tiny "
                "probability becomes the same. Subtract logarithms instead of dividing.",
            ),
            atol=1e-4,
        ),
        gives(
            "impossible",
            "−inf stays −inf",
            lambda fn: fn(torch.tensor([[0.0, -math.inf, 0.0]])),
            [[HALF, -math.inf, HALF]],
            "the result",
            "A logit of −inf is a token that cannot come. It stays, and disturbs no other.",
            (_has_nan, "A logit of −inf makes nan of the row. It means a probability of 0."),
            atol=1e-4,
        ),
    ),
)

# answer_log_prob. Words: 0 "The capital of France is", 1 " Paris", 2 " cheese", 3 ".".
# Row t holds the chances of what comes after word t.
CHANCES = torch.tensor(
    [
        [0.1, 0.7, 0.1, 0.1],
        [0.1, 0.05, 0.05, 0.8],
        [0.1, 0.1, 0.6, 0.2],
        [0.4, 0.2, 0.1, 0.3],
    ]
)


def _after(ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Logits and ids, [1, T, 4] and [1, T], of a text in the four words."""
    place = torch.arange(len(ids))[:, None]
    return (CHANCES[list(ids)].log() + 3 + place)[None], torch.tensor([list(ids)])


def _score(fn: Any, ids: Sequence[int], prompt_tokens: int) -> float:
    got = fn(*_after(ids), prompt_tokens)
    if isinstance(got, Tensor):
        expect(
            got.numel() == 1,
            "One number is asked for, the whole answer's. Add up those of its tokens.",
            expected=Words("one number"),
            got=got,
        )
        return float(got)
    expect(
        isinstance(got, float | int) and not isinstance(got, bool),
        "One number is asked for, the logarithm of the answer's probability.",
        expected=Words("a float"),
        got=got,
    )
    return float(got)


def _scores(
    name: str,
    about: str,
    ids: Sequence[int],
    prompt: int,
    chances: Sequence[float],
    hint: str,
    *known: Diagnosis,
) -> Stage:
    """A stage that compares an answer's score with the product of its tokens' chances."""
    return gives(
        name,
        about,
        lambda fn: _score(fn, ids, prompt),
        math.fsum(math.log(chance) for chance in chances),
        "score",
        hint,
        *known,
        atol=1e-4,
    )


ANSWER_LOG_PROB = Task(
    name="answer_log_prob",
    lesson=3,
    minutes=10,
    difficulty="medium",
    statement="Mend the function that says how probable an answer is.",
    solution=answer_log_prob,
    helpers=(log_probs,),
    hunt=True,
    hints=(
        "The logits at a token speak about the token after it. Which row, then, has something "
        "to say about the answer's first token?",
        "With P tokens in the prompt and A in the answer, T = P + A. A rows of logits are "
        "needed, the first of them at the prompt's last token.",
        "The answer's tokens are input_ids[:, prompt_tokens:]. The rows that predict them start "
        "one earlier, at prompt_tokens - 1, and end one earlier: the last row predicts what "
        "comes after the answer.",
    ),
    stages=(
        _scores(
            "one token",
            "an answer of one token",
            [0, 1],
            1,
            [0.7],
            "After word 0 word 1 has a chance of 0.7, so ln 0.7 is asked for.",
            (
                math.log(0.05),
                "The scores of each token are looked up in its own row. That row speaks about "
                "the token after it: the one before predicts this one.",
            ),
            (0.7, "You return the probability. Its logarithm is asked for."),
            (-math.log(0.7), "The sign is wrong: that is a loss. Its opposite is asked for."),
            (
                lambda got: got > 0,
                "A logarithm of a probability is never above 0. Logits must be normalised: "
                "log_softmax(dim=-1).",
            ),
        ),
        _scores(
            "two tokens",
            "an answer of two tokens",
            [0, 1, 3],
            1,
            [0.7, 0.8],
            "The chances of both tokens count: 0.7 × 0.8.",
            (math.log(0.7), "Only the answer's first token counts in yours."),
            (math.log(0.8), "Only the answer's last token counts in yours."),
            (
                (math.log(0.7) + math.log(0.8)) / 2,
                "You average over the tokens. Chances multiply, so their logarithms add up.",
            ),
        ),
        _scores(
            "prompt",
            "a prompt of two tokens, which is not scored",
            [3, 0, 2, 3],
            2,
            [0.1, 0.2],
            "The answer begins after prompt_tokens tokens, and only its tokens are scored.",
            (
                math.log(0.4) + math.log(0.1) + math.log(0.2),
                "The prompt's own tokens are scored, too. The person wrote those, not the model.",
            ),
        ),
        _scores("nothing", "an answer of no token", [3, 0], 2, [], "No answer is certain: 0."),
    ),
)

TASKS = (LAST_LOGITS, PREFILL, LOG_PROBS, ANSWER_LOG_PROB)

"""POST /generate: whole answers."""

from collections.abc import Callable
from threading import Thread
from typing import Any, TypeGuard

from .check import check, is_count, is_number
from .client import Client, NotHere, Unmet

GROUP = "/generate"
TIMING = ("queue_ms", "ttft_ms", "latency_ms")  # in the order in which they come to pass
FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a string", lambda v: isinstance(v, str)),
    "timing": (f"an object with the numbers {', '.join(TIMING)}", lambda v: _is_timing(v)),
    "token_count": ("a whole number", is_count),
    "prompt_tokens": ("a whole number", is_count),
    "throughput": ("a number", lambda v: is_number(v) and v >= 0),
    "cache_usage": ("true or false", lambda v: isinstance(v, bool)),
    "finish_reason": ('"stop" or "length"', lambda v: v in ("stop", "length")),
    "status_code": ("200", lambda v: v == 200 and not isinstance(v, bool)),
    "model": ("a string", lambda v: isinstance(v, str) and v != ""),
    "request_id": ("a string", lambda v: isinstance(v, str) and v != ""),
}


def _is_timing(value: Any) -> TypeGuard[dict[str, float]]:
    return isinstance(value, dict) and all(
        is_number(value.get(name)) and value[name] >= 0 for name in TIMING
    )


def wrong_fields(found: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """Say of each named field that is missing or of the wrong kind what it should be."""
    faults = []
    for name in names:
        kind, right = FIELDS[name]
        if name not in found:
            faults.append(f"no `{name}`")
        elif not right(found[name]):
            faults.append(f"`{name}` is {found[name]!r}, not {kind}")
    return faults


@check(
    GROUP,
    f"An answer is a JSON object with {', '.join(FIELDS)}, each of its kind.",
    "Fill every field of the response; let a pydantic model name the types.",
)
def answer_fields(client: Client) -> None:
    """Look at each field of one answer."""
    faults = wrong_fields(client.generate("Name a fruit.", token_limit=6), tuple(FIELDS))
    if faults:
        raise Unmet("; ".join(faults) + ".")


@check(
    GROUP,
    "The clocks agree: queue_ms ≤ ttft_ms ≤ latency_ms.",
    "Count all three from the request's arrival, on one clock.",
)
def clocks(client: Client) -> None:
    """Look at one answer's timing."""
    timing = client.generate("Name a colour.", token_limit=6).get("timing")
    if not _is_timing(timing):
        raise NotHere("the answer has no complete `timing`")
    times = [timing[name] for name in TIMING]
    if times != sorted(times):
        raise Unmet(", ".join(f"{name} {timing[name]}" for name in TIMING) + ".")


@check(
    GROUP,
    "token_count ≤ token_limit; finish_reason is length when the limit ended the answer.",
    "Count generated tokens only, without the end of turn; stop when the limit is reached.",
)
def token_limit(client: Client) -> None:
    """Ask for one token, then for a few."""
    for limit in (1, 7):
        answer = client.generate("Tell me a story.", token_limit=limit)
        count, reason = answer.get("token_count"), answer.get("finish_reason")
        right = is_count(count) and (count == limit or (count < limit and reason == "stop"))
        if not right or reason not in ("stop", "length"):
            raise Unmet(f"with token_limit {limit}: token_count {count}, finish_reason {reason!r}.")


@check(
    GROUP,
    "Temperature 0 (the default) gives the same text twice.",
    "Take the largest logit at temperature 0, and let no request see another's cache.",
)
def greedy_repeats(client: Client) -> None:
    """Ask twice."""
    first, second = (client.generate("Name a river.", token_limit=12)["text"] for _ in range(2))
    if first != second:
        raise Unmet(f"{first!r}, then {second!r}.")


@check(
    GROUP,
    "The same seed gives the same text twice, at temperature 1.",
    "Give each request a random generator of its own, seeded from its `seed`.",
)
def seed_repeats(client: Client) -> None:
    """Ask twice with a seed."""
    drawn: dict[str, Any] = {"token_limit": 12, "temperature": 1.0, "top_p": 0.95, "seed": 7}
    first, second = (client.generate("Name a mountain.", **drawn)["text"] for _ in range(2))
    if first != second:
        raise Unmet(f"{first!r}, then {second!r}.")


@check(
    GROUP,
    "A stop string ends the answer: the text stops right before it, finish_reason is stop.",
    "Hold back what may be the beginning of a stop string; cut the text where one is whole.",
)
def stop_strings(client: Client) -> None:
    """Take a stop string out of an answer, and ask again."""
    asked: dict[str, Any] = {"prompt": "Count to ten.", "token_limit": 16}
    full = client.generate(**asked)["text"]
    stop = _inside(full)
    answer = client.generate(**asked, stop=[stop])
    expected = full.partition(stop)[0]
    if answer["text"] != expected:
        raise Unmet(f"without it {full!r}; with stop {stop!r}: {answer['text']!r}.")
    if answer.get("finish_reason") != "stop":
        raise Unmet(f"the right text, but finish_reason {answer.get('finish_reason')!r}.")


def _inside(text: str) -> str:
    """Find two characters in the middle of a text that are no part of a broken character."""
    middle = len(text) // 2
    for at in [*range(middle, len(text) - 1), *range(1, middle)]:
        if "\ufffd" not in (stop := text[at : at + 2]) and stop.strip() == stop:
            return stop
    raise NotHere(f"the model's answer is too short to find a stop string in: {text!r}")


@check(
    GROUP,
    "A system prompt is read: a longer `system` makes prompt_tokens larger.",
    "Put `system` in front of the conversation as a message of that role.",
)
def system_prompt(client: Client) -> None:
    """Compare two system prompts."""
    systems = ("Be brief.", "Be brief, and speak only of apples, pears, plums and cherries.")
    brief, long = (
        client.generate("Who are you?", token_limit=2, system=system).get("prompt_tokens")
        for system in systems
    )
    if not (is_count(brief) and is_count(long) and long > brief):
        raise Unmet(f"prompt_tokens {brief} with a short one, {long} with a long one.")


@check(
    GROUP,
    "A typed <|im_end|> is text like any other: 200, and it costs several tokens, not one.",
    "Encode what a user says without the tokenizer's control tokens.",
)
def typed_marker(client: Client) -> None:
    """Type the marker that ends a turn."""
    texts = ("Explain the marker.", "Explain the marker<|im_end|>.")
    plain, typed = (client.generate(text, token_limit=2).get("prompt_tokens") for text in texts)
    if not (is_count(plain) and is_count(typed) and typed >= plain + 2):
        raise Unmet(f"prompt_tokens {plain} without it, {typed} with it.")


@check(
    GROUP,
    "Two requests at once are each answered as they are alone.",
    "Keep everything that changes while a request runs in that request's own objects.",
)
def two_at_once(client: Client) -> None:
    """Ask two things alone, then together."""
    prompts = ("List three animals.", "What is bread made of?")
    alone = [client.generate(prompt, token_limit=10)["text"] for prompt in prompts]
    if alone[0] == alone[1]:
        raise NotHere("the model says the same to both prompts")
    together = _together(client, prompts)
    for prompt, own, other, text in zip(prompts, alone, alone[::-1], together, strict=True):
        # In half precision a batch may move an answer's last words, never its beginning.
        if text != own and _shared(text, own) <= _shared(text, other):
            raise Unmet(f"to {prompt!r} alone {own!r}, beside another {text!r}.")


def _together(client: Client, prompts: tuple[str, ...]) -> list[str]:
    texts: dict[str, str | Exception] = {}

    def ask(prompt: str) -> None:
        other = client.another()
        try:
            texts[prompt] = other.generate(prompt, token_limit=10)["text"]
        except Exception as error:
            texts[prompt] = error
        finally:
            other.close()

    threads = [Thread(target=ask, args=(prompt,), daemon=True) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(client.left() + 1)
    found = [texts.get(prompt, Unmet("one of the two was not answered.")) for prompt in prompts]
    for item in found:
        if isinstance(item, Exception):
            raise item
    return [str(item) for item in found]


def _shared(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


CHECKS = (
    answer_fields,
    clocks,
    token_limit,
    greedy_repeats,
    seed_repeats,
    stop_strings,
    system_prompt,
    typed_marker,
    two_at_once,
)

"""Many requests at once over HTTP, against the same in one batch, and one after another."""

import asyncio
import json
import sys
from dataclasses import asdict
from time import perf_counter
from typing import Any

from tqdm import tqdm

from .bench import opened_runner
from .bench_many_report import FirstToken, ManyReport, Speeds, summary, table
from .chat import build_messages, encode_chat
from .config import Settings
from .errors import TutorialServerError
from .load import run_load
from .load_plan import LoadPlan, Question
from .load_report import LoadReport
from .models import LLM, load_model, sync_gpu
from .padding import pad_left
from .runner import Runner
from .sequence import SamplingParams, Sequence
from .server_process import server_process

PROMPTS = (  # whose greedy answers are long; that they were is counted
    "Tell me a long story about a fox who learns to read.",
    "Explain, step by step and in detail, how a bicycle stays upright.",
    "Write a long letter to a friend about a week by the sea.",
    "Describe in detail how bread is baked, from the flour to the loaf.",
    "Explain how a river shapes a valley, and give several examples.",
    "List twenty things to take on a walk in the mountains, and say why.",
    "Write a detailed essay on how people told the time before there were clocks.",
    "Explain to a child, at length, why the sky is blue.",
)
FIRST_TOKENS = 20  # requests whose time to first token is taken


def bench_many(settings: Settings, tokens: int, rounds: int, as_json: bool) -> int:
    """Measure, and print a table or JSON."""
    if rounds < 5 or tokens < 2:
        raise TutorialServerError(
            "Fewer than 5 rounds or 2 tokens say nothing; raise --rounds or --tokens."
        )
    llm = load_model(settings.model, settings.device, settings.dtype, cache=settings.cache)
    with server_process(settings) as url:
        report = measure_many(llm, url, tokens, rounds)
    print(json.dumps(asdict(report), indent=2) if as_json else table(report))
    return 0


def measure_many(llm: LLM, url: str, tokens: int = 64, rounds: int = 5) -> ManyReport:
    """Run the three ways in turn, round after round, against a server that is ready."""
    numbers = tqdm(range(rounds + 1), desc="rounds", file=sys.stderr, leave=False)
    speeds = [_one_round(llm, url, tokens) for _ in numbers][1:]  # the first warms up
    return summary(llm.name, str(llm.device), tokens, speeds, _first_tokens(llm, url))


def _one_round(llm: LLM, url: str, tokens: int) -> Speeds:
    at_once = _over_http(url, PROMPTS, tokens, clients=len(PROMPTS))
    batch = _batch_speed(llm, tokens)
    in_turn = _over_http(url, PROMPTS, tokens, clients=1)
    return Speeds(
        requests=len(PROMPTS),
        at_once=at_once.tokens_per_second,
        batch=batch,
        in_turn=in_turn.tokens_per_second,
        answer_tokens=tuple(o.tokens for r in (at_once, in_turn) for o in r.outcomes),
    )


def _over_http(url: str, prompts: tuple[str, ...], tokens: int, clients: int) -> LoadReport:
    """Ask all, and hold up a measurement in which one of them was not answered."""
    questions = [Question(prompt, tokens) for prompt in prompts]
    report = asyncio.run(run_load(LoadPlan(url, clients=clients), questions))
    if report.count("complete") < len(prompts):
        reasons = ", ".join(report.errors) or "it refused some, or was too slow"
        raise TutorialServerError(f"The server did not answer every request: {reasons}.")
    return report


def _batch_speed(llm: LLM, tokens: int) -> float:
    """Answer all prompts in one left-padded batch of transformers' own, in tokens per second."""
    ids, mask = pad_left([_prompt_ids(llm, prompt) for prompt in PROMPTS], pad_id=0)  # [B, T]
    model: Any = llm.model
    start = perf_counter()
    model.generate(
        ids.to(llm.device),
        attention_mask=mask.to(llm.device),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=llm.model.config.vocab_size,  # no id, so that every answer is as long
        pad_token_id=0,
    )
    sync_gpu(llm.device)
    return len(PROMPTS) * tokens / (perf_counter() - start)


def _first_tokens(llm: LLM, url: str) -> list[FirstToken]:
    """Take time to first token on the idle server and the prefill alone, in turn."""
    prompts = [_prompt_ids(llm, prompt) for prompt in PROMPTS]
    runner = opened_runner(llm, prompts, tokens=1)
    found = []
    for number in range(FIRST_TOKENS + 1 if runner else 0):
        at = number % len(PROMPTS)
        (outcome,) = _over_http(url, PROMPTS[at : at + 1], 2, clients=1).outcomes
        assert runner is not None
        prefill = _prefill_ms(runner, prompts[at])
        if outcome.ttft is not None and number > 0:  # the first warms up
            found.append(FirstToken(outcome.ttft * 1e3, prefill))
    return found


def _prefill_ms(runner: Runner, prompt_ids: list[int]) -> float:
    sequence = Sequence(runner.llm, prompt_ids, SamplingParams(max_new_tokens=1))
    start = perf_counter()
    runner.prefill([sequence])
    sync_gpu(runner.llm.device)
    milliseconds = (perf_counter() - start) * 1e3
    runner.release(sequence)
    return milliseconds


def _prompt_ids(llm: LLM, prompt: str) -> list[int]:
    return encode_chat(llm, build_messages(prompt))

"""The recording of passes: which slot, what kind, how many tokens, in which order."""

from tiny import tiny_llama

from tutorial_server.decoding import run
from tutorial_server.runner import TransformersRunner
from tutorial_server.sequence import SamplingParams, Sequence
from tutorial_server.slot_runner import SlotPlan, SlotRunner
from tutorial_server.timeline import RecordingRunner


def slots(llm, count=3):
    return RecordingRunner(SlotRunner(llm, SlotPlan(count, 64, 1)))


def sequence(llm, tokens, limit=3):
    return Sequence(llm, list(range(5, 5 + tokens)), SamplingParams(limit))


def parts(runner):
    return [(step.number, step.slot, step.kind, step.tokens) for step in runner.row_steps]


def test_rows_that_share_a_pass_share_its_number_and_its_times():
    llm = tiny_llama()
    runner = slots(llm)
    rows = [sequence(llm, 4), sequence(llm, 2)]
    for row, logits in zip(rows, runner.prefill(rows), strict=True):
        row.accept(logits)
    runner.decode(rows)
    assert parts(runner) == [
        (0, 0, "prefill", 4), (0, 1, "prefill", 2), (1, 0, "decode", 1), (1, 1, "decode", 1)
    ]  # fmt: skip
    first, second, third, _ = runner.row_steps
    assert (first.start, first.end) == (second.start, second.end)
    assert 0 <= first.start < first.end <= third.start
    assert runner.passes == 2


def test_a_prompt_read_in_chunks_has_a_part_for_each():
    llm = tiny_llama()
    runner = slots(llm)
    rows = [sequence(llm, 5), sequence(llm, 4)]
    for _ in range(3):
        runner.prefill([row for row in rows if row.prompt_read < len(row.prompt_ids)], 4)
    assert parts(runner) == [
        (0, 0, "prefill", 4), (1, 0, "prefill", 1), (1, 1, "prefill", 3), (2, 1, "prefill", 1)
    ]  # fmt: skip


def test_a_slot_that_is_released_goes_to_the_next_as_in_the_runner():
    llm = tiny_llama()
    runner = slots(llm)
    first, second, third = rows = [sequence(llm, 2) for _ in range(3)]
    runner.prefill(rows)
    runner.release(second)
    late = sequence(llm, 2)
    runner.prefill([late])
    assert runner.row_steps[-1].slot == late.cache == 1
    assert (first.cache, third.cache) == (0, 2)


def test_answers_are_those_of_the_runner_and_any_runner_will_do():
    llm = tiny_llama()
    bare, noted = sequence(llm, 6, 5), sequence(llm, 6, 5)
    for _ in run(TransformersRunner(llm), bare):
        pass
    runner = RecordingRunner(TransformersRunner(llm))
    for _ in run(runner, noted):
        pass
    assert noted.token_ids == bare.token_ids
    assert [step.kind for step in runner.row_steps].count("prefill") == 1
    assert {step.slot for step in runner.row_steps} == {0}
    assert runner.rows == 1 and runner.llm is llm

"""A check never raises, tells unwritten from wrong, and says what it means."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from html import unescape

import pytest
import torch

from tutorial_server.exercises import Report, check, check_saved, hint, reveal, status, trial
from tutorial_server.exercises.lesson02 import PAD_LEFT, ROWS
from tutorial_server.exercises.show import show
from tutorial_server.exercises.trial import try_out
from tutorial_server.padding import pad_left as reference


class Nasty:
    """Answers no question about itself."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no eq")

    def __len__(self):
        raise RuntimeError("no len")

    __hash__ = None  # type: ignore[assignment]


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no str")


def raising(error):
    def pad_left(sequences, pad_id):
        raise error

    return pad_left


def returning(value):
    def pad_left(sequences, pad_id):
        return value

    return pad_left


def endless_recursion(sequences, pad_id):
    return endless_recursion(sequences, pad_id)


JUNK = [None, 3, "ids", [], (), {}, (1, 2), Nasty(), (Nasty(), Nasty()), print, Report, iter([])]
ERRORS = [
    ValueError("seven"),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    BaseException("base"),
    Silent(),
    MemoryError(),
    NotImplementedError("Could not run 'aten::add' with this backend."),
]


@pytest.mark.parametrize("value", JUNK, ids=lambda v: type(v).__name__)
def test_junk_is_wrong_and_nothing_raises(value, capsys):
    report = check(returning(value))
    assert not report
    assert report.state == "wrong"
    assert report.failure.stage == "type"
    assert "pad_left: not right yet, 0 of 9 stages passed" in capsys.readouterr().out


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_whatever_is_raised_is_reported_with_the_learners_line(error):
    report = check(raising(error))
    assert report.state == "wrong"
    assert report.failure.got.startswith(type(error).__name__)
    assert report.failure.got.endswith(": raise error")
    assert "sequences = [[5, 6, 7], [8]]" in report.failure.given


def test_an_endless_recursion_is_named():
    assert "calls itself without end" in try_out(PAD_LEFT, endless_recursion).failure.hint


@pytest.mark.parametrize("message", ["pad_left", ""])
def test_a_stub_is_not_written_yet(message, capsys, mine):
    report = check(raising(NotImplementedError(message)))
    assert not report
    assert report.state == "not written"
    assert report.failures == ("pad_left: not written yet",)
    assert "WRONG" not in capsys.readouterr().out
    assert not mine.exists()  # looking is not trying


def test_a_stub_that_it_calls_is_named():
    report = check(raising(NotImplementedError("position_ids")))
    assert report.state == "not written"
    assert "position_ids, which is not written yet" in str(report)


def endless(sequences, pad_id):
    while True:
        pass


def waiting(sequences, pad_id):
    time.sleep(4)


@pytest.mark.parametrize(("function", "left"), [(endless, False), (waiting, True)])
def test_a_loop_without_end_is_broken_off(function, left, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT_S", 0.3)
    began = time.perf_counter()
    failure = try_out(PAD_LEFT, function).failure
    assert time.perf_counter() - began < 3
    assert "had not finished after 0.3 s. Does a loop never end?" in failure.hint
    assert ("restart the kernel" in failure.hint) == left
    assert failure.stage == "type"


def test_a_broken_off_loop_uses_no_more_time(monkeypatch):
    before = threading.active_count()
    try_out(PAD_LEFT, endless, limit_s=0.2)
    assert threading.active_count() == before


def test_a_real_interrupt_gets_through():
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        threading.Timer(0.3, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            try_out(PAD_LEFT, endless, limit_s=5.0)
    finally:
        signal.signal(signal.SIGINT, before)


def appending(sequences, pad_id):
    for sequence in sequences:
        sequence.append(pad_id)
    return reference(sequences, pad_id)


def test_changing_an_argument_is_named_and_spoils_nothing():
    for _ in range(2):
        failure = try_out(PAD_LEFT, appending).failure
        assert "changes its argument `sequences` in place" in failure.hint
        assert "[[5, 6, 7, 0], [8, 0]]" in failure.got
        assert failure.given.startswith("sequences = [[5, 6, 7], [8]]")
    assert ROWS == [[5, 6, 7], [8]]


def one_parameter(sequences):
    return reference(sequences, 0)


def test_wrong_parameters_show_both_first_lines():
    failure = try_out(PAD_LEFT, one_parameter).failure
    assert failure.expected == "def pad_left(sequences, pad_id):"
    assert failure.got == "def one_parameter(sequences):"


def printing(sequences, pad_id):
    print("n =", len(sequences))
    return reference(sequences, pad_id + 1)


def chattering(sequences, pad_id):
    for i in range(100_000):
        print(i)


def test_prints_are_kept_for_the_report_and_the_flood_is_cut(capsys):
    assert try_out(PAD_LEFT, printing).failure.printed == "n = 2"
    assert len(try_out(PAD_LEFT, chattering).failure.printed) < 700
    assert capsys.readouterr().out == ""


def drawing(sequences, pad_id):
    torch.rand(3)
    return reference(sequences, pad_id)


def test_random_numbers_go_on_as_if_nothing_had_been_checked():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    assert try_out(PAD_LEFT, drawing)
    assert torch.equal(torch.rand(2), expected)


SENTENCES = [
    ((), "Give the function itself, for example check(pad_left)"),
    (("pad_left",), "without quotes: check(pad_left)"),
    ((reference([[1]], 0),), "That is a tuple of 2, not a function"),
    ((None,), "That is None, not a function"),
    ((Nasty(),), "That is a Nasty, not a function"),
    ((print,), "There is no task called print"),
    ((lambda: 0,), "That has no name of its own"),
    ((functools.partial(print),), "That has no name of its own"),
]


@pytest.mark.parametrize(("given", "said"), SENTENCES, ids=[s[:25] for _, s in SENTENCES])
def test_what_is_no_task_gets_a_sentence(given, said, capsys):
    report = check(*given)
    assert not report
    assert report.state == "unknown"
    assert said in capsys.readouterr().out
    assert said in report.failures[0]


def test_a_misspelt_name_is_guessed(capsys):
    def pad_lefd(sequences, pad_id):
        return None

    check(pad_lefd)
    assert "Did you mean pad_left?" in capsys.readouterr().out


def right_padded(sequences, pad_id):
    return torch.tensor([[5, 6, 7], [8, pad_id, pad_id]]), torch.ones(2, 3, dtype=torch.int64)


EXACT = """\
pad_left: not right yet, 2 of 9 stages passed

  ok           type         ids and mask, two int64 tensors
  ok           shape        [B, T]: a row a sequence, as wide as the longest
  WRONG        side         pads first, then the tokens in their order
  not reached  pad id       filled up with the pad_id that was given
  not reached  mask         1 for a real token, 0 for a pad
  not reached  real pad id  a real token may have the pad's id
  not reached  any order    the longest sequence may stand anywhere
  not reached  edges        one sequence alone, and an empty one
  not reached  whole        five sequences together

In stage "side":
  given        sequences = [[5, 6, 7], [8]]
               pad_id = 0
  expected     ids: int64 [2, 3]
               [[5, 6, 7],
                [0, 0, 8]]
  yours        ids: int64 [2, 3]
               [[5, 6, 7],
                [8, 0, 0]]
  they differ  in 2 of 6 places, first at [1, 0]
  hint         Your pads are on the right. The model continues from the last column, so \
that must be a real token: pads go on the left.
"""


def test_the_text_is_exact(capsys):
    right_padded.__name__ = "pad_left"
    report = check(right_padded)
    assert capsys.readouterr().out == EXACT
    assert str(report) + "\n" == EXACT
    assert repr(report) == "<Report pad_left: wrong>"
    assert report.failures == (f"side: {report.hint}",)


def test_the_table_says_the_same_in_words_and_survives_without_trust():
    right_padded.__name__ = "pad_left"
    html = check(right_padded).to_html()
    text = unescape(html).replace("\xa0", " ")
    for word in ("ok", "WRONG", "not reached", "expected", "yours", "hint", "<br> [8, 0, 0]]"):
        assert word in text
    assert "<style" not in html
    assert "<svg" not in html
    assert "hsl(" not in html


VALUES = [
    (torch.tensor([[5, 6], [10, 8]]), "int64 [2, 2]\n[[ 5,  6],\n [10,  8]]"),
    (torch.tensor([[[True, False]]]), "bool [1, 1, 2]\n[[1, 0]]"),
    (torch.tensor([1.5, float("-inf"), 1 / 3]), "float32 [3]\n[1.5, -inf, 0.3333]"),
    (torch.tensor(3), "int64 []: 3"),
    (torch.zeros(0, 3), "float32 [0, 3]\n[]"),
    (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … 20 in all]"),
    ((1,), "(1,)"),
    ("a\nb", "'a\\n'\n'b'"),
    ("", "''"),
    ([{"role": "user"}, {"role": "x"}], "[{'role': 'user'},\n {'role': 'x'}]"),
    (None, "None"),
    (b"ab", "b'ab'"),
    (object(), "<object>"),
    (Nasty(), "<a Nasty that cannot be printed>"),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=[t[:12] for _, t in VALUES])
def test_values_are_printed_small(value, text):
    assert show(value) == text


def test_large_values_are_cut():
    assert len(show(torch.rand(100, 100))) < 700
    assert show(torch.rand(30, 1)).endswith("… 30 rows in all]")
    assert len(show("x" * 10_000)) < 300
    assert len(show({i: i for i in range(1000)})) < 300


def test_what_a_learner_writes_cannot_break_the_table():
    assert "<script>" not in check(returning("<script>")).to_html()


def test_a_report_cannot_be_changed():
    report = check(returning(None))
    with pytest.raises(AttributeError):
        report.state = "passed"


def test_hints_come_one_by_one_and_the_last_stays(capsys):
    heads = []
    for _ in range(4):
        hint("pad_left")
        heads.append(capsys.readouterr().out.splitlines()[0])
    assert heads == [
        "pad_left, hint 1 of 3: the idea",
        "pad_left, hint 2 of 3: the shapes",
        "pad_left, hint 3 of 3: nearly the code",
        "pad_left, hint 3 of 3: nearly the code",
    ]


def test_reveal_shows_the_packages_source(capsys):
    reveal(reference)
    out = capsys.readouterr().out
    assert out.startswith("pad_left, as in tutorial_server.padding")
    assert "def pad_left(sequences: Sequence[Sequence[int]], pad_id: int)" in out


@pytest.mark.parametrize("call", [hint, reveal])
def test_hint_and_reveal_take_anything(call, capsys):
    call()
    call(3)
    call("no_such_task")
    said = capsys.readouterr().out
    assert "Which task?" in said
    assert "That is an int, not a function" in said
    assert "There is no task called no_such_task" in said


def test_status_lists_states_and_minutes(capsys):
    check(returning(None))
    capsys.readouterr()
    status()
    lines = capsys.readouterr().out.splitlines()
    assert "02  Attention masks and padding" in lines
    assert "    pad_left                tried          10 min   easy" in lines
    assert "    may_attend              not started    10 min   medium" in lines
    assert "    append_tokens           not started     5 min   bug hunt" in lines


def test_the_packages_own_function_is_not_saved_as_ones_own(mine):
    report = check(reference)
    assert report
    assert report.saved is None
    assert "the package's own function" in str(report)
    assert check_saved() == []
    assert not mine.exists()


def test_importing_is_light_and_a_lesson_loads_no_other():
    code = (
        "import sys; from tutorial_server.exercises import check\n"
        "assert not {'torch', 'transformers', 'IPython'} & set(sys.modules)\n"
        "def pad_left(a, b): pass\n"
        "check(pad_left)\n"
        "print([m for m in sys.modules if m.startswith('tutorial_server.exercises.lesson')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['tutorial_server.exercises.lesson02']"

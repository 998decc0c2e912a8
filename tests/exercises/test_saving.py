"""What has passed is saved whole, proven from its file, and nothing is ever lost."""

import functools
import subprocess
import sys

import pytest
import torch
from kernels import started

from tutorial_server.exercises import (
    check,
    check_saved,
    load_mine,
    print_saved,
    saved_besides,
    trial,
)
from tutorial_server.exercises.lesson02 import PAD_LEFT
from tutorial_server.exercises.mine import STEPS
from tutorial_server.exercises.saved import save, try_file
from tutorial_server.exercises.standalone import standalone
from tutorial_server.serving import learner_steps

PAD = 0


def filled(sequences, pad_id):
    width = max(map(len, sequences))
    return [[pad_id] * (width - len(s)) + list(s) for s in sequences]


def pad_left(sequences, pad_id):
    ones = [[1] * len(s) for s in sequences]
    return torch.tensor(filled(sequences, pad_id)), torch.tensor(filled(ones, PAD))


def test_helpers_constants_and_imports_are_taken_along(mine):
    report = check(pad_left)
    assert report.saved == mine / "solutions" / "pad_left.py"
    text = report.saved.read_text()
    assert "import torch\n" in text
    assert "PAD = 0\n" in text
    assert text.index("def filled(") < text.index("def pad_left(")
    assert "pytest" not in text


def test_the_file_runs_in_a_process_that_knows_nothing_of_it(mine):
    file = check(pad_left).saved
    call = "['pad_left']([[5], [6, 7]], 0)[0].tolist()"
    code = f"import runpy; print(runpy.run_path({str(file)!r}){call})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[[0, 5], [6, 7]]\n", done.stderr


def test_the_note_says_where_it_is(mine):
    assert str(check(pad_left)).endswith("solutions/pad_left.py, and checked again from there.")


def test_a_second_solution_keeps_the_first_in_the_backups(mine):
    saved = mine / "solutions" / "pad_left.py"
    saved.parent.mkdir(parents=True)
    saved.write_text("an older one")
    check(pad_left)
    check(pad_left)
    assert "def filled" in saved.read_text()
    assert (mine / "backups" / "pad_left.1.py").read_text() == "an older one"
    assert len(list((mine / "backups").iterdir())) == 1
    assert [p.name for p in saved.parent.iterdir()] == ["pad_left.py"]


def test_a_failing_one_leaves_the_saved_one_alone(mine):
    text = check(pad_left).saved.read_text()

    def failing(sequences, pad_id):
        return None

    failing.__name__ = "pad_left"
    assert not check(failing)
    assert (mine / "solutions" / "pad_left.py").read_text() == text


def made_elsewhere(value):
    def pad_left(sequences, pad_id):
        return value and (torch.tensor(filled(sequences, pad_id)), pad_ones(sequences))

    return pad_left


def pad_ones(sequences):
    return torch.tensor(filled([[1] * len(s) for s in sequences], 0))


class Tool:
    pad = staticmethod(filled)


tool = subprocess.Popen.__new__(subprocess.Popen)
tool.pad = filled


def with_a_tool(sequences, pad_id):
    return torch.tensor(tool.pad(sequences, pad_id)), pad_ones(sequences)


with_a_tool.__name__ = "pad_left"


def once(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@functools.cache
def cached_width(rows):
    return max(map(len, rows))


@torch.no_grad()
@once
def decorated(sequences, pad_id):
    width = cached_width(tuple(map(tuple, sequences)))
    ids = [[pad_id] * (width - len(s)) + list(s) for s in sequences]
    return torch.tensor(ids), pad_ones(sequences)


def test_decorators_are_taken_along():
    alone = standalone(decorated, "decorated")
    assert alone.missing == {}
    assert "@torch.no_grad()\n@once\ndef decorated(" in alone.text
    assert "@functools.cache\ndef cached_width(" in alone.text
    assert "def once(function):" in alone.text
    space = {}
    exec(alone.text, space)
    assert space["decorated"]([[5], [6, 7]], 0)[0].tolist() == [[0, 5], [6, 7]]


def test_a_function_under_another_name_than_its_text_is_not_saved():
    result = save(PAD_LEFT, with_a_tool)
    assert result.file is None
    assert result.note.startswith("Not saved, because the text of pad_left was not found")


@pytest.mark.parametrize("name", ["tool"])
def test_an_object_made_elsewhere_is_missing(name):
    with_a_tool.__name__ = "with_a_tool"
    alone = standalone(with_a_tool, "with_a_tool")
    assert alone.missing == {name: "a Popen made elsewhere in your notebook"}


def test_a_function_inside_a_function_cannot_be_saved(mine):
    report = check(made_elsewhere(True))
    assert report
    assert report.saved is None
    assert "define it with `def` at the top of a cell, not inside another" in report.notes[0]


CALLS = []


def stateful(sequences, pad_id):
    CALLS.append(1)
    return pad_left(sequences, pad_id) if len(CALLS) < 20 else None


def test_what_passes_only_in_the_notebook_is_not_saved(mine):
    """A list that has grown by then is saved as it is, and the saved copy fails."""
    CALLS[:] = []
    stateful.__name__ = "stateful"
    alone = standalone(stateful, "stateful")
    file = mine / "stateful.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        alone.text.replace("CALLS = []", "CALLS = [1] * 30") + "\npad_left = stateful\n"
    )
    function_trial, function = try_file(PAD_LEFT, file)
    assert function is None
    assert function_trial.failure.stage == "type"


def test_a_folder_that_cannot_be_written_is_a_note(mine):
    mine.write_text("a file where the folder should be")
    report = check(pad_left)
    assert report
    assert report.saved is None
    assert "can't be written" in report.notes[0]


def write_solution(mine, text, name="pad_left"):
    file = mine / "solutions" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_saved_solutions_are_checked_from_their_files(mine):
    check(pad_left)
    assert [(r.name, r.state) for r in check_saved()] == [("pad_left", "passed")]
    write_solution(mine, "import torch\nnot_there\n")
    (report,) = check_saved()
    assert not report
    assert report.stages[0][:2] == ("WRONG", "file")
    assert "NameError: name 'not_there' is not defined" in report.hint


def test_the_terminal_sees_status_and_what_no_longer_passes(mine, capsys):
    check(pad_left)
    capsys.readouterr()
    assert print_saved()
    assert "    pad_left                passed         10 min   easy" in capsys.readouterr().out
    write_solution(mine, "def pad_left(sequences, pad_id):\n    return None\n")
    assert not print_saved()
    out = capsys.readouterr().out
    assert "Saved, but it no longer passes: pad_left: not right yet, 0 of 9 stages" in out
    assert "Your function returned None" in out


def test_a_file_without_the_function_says_so(mine):
    write_solution(mine, "x = 1\n")
    assert "does not define pad_left" in check_saved()[0].hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pad_left = 5\n", "gives pad_left as an int, which is no function"),
        ("import math\nmath.nothing\n", "AttributeError: module 'math' has no attribute 'nothing'"),
        ("raise SystemExit(3)\n", "does not run by itself: SystemExit: 3"),
    ],
    ids=["no function", "an error of its own", "an end"],
)
def test_what_is_wrong_with_a_file_is_said(mine, text, said):
    write_solution(mine, text)
    assert said in check_saved()[0].hint


def test_a_file_that_never_ends_is_broken_off(mine, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT_S", 0.2)
    write_solution(mine, "while True:\n    pass\n")
    assert "had not finished" in check_saved()[0].hint


def test_mine_is_the_reference_where_nothing_is_saved():
    steps = load_mine()
    assert list(steps) == [
        "render_chat", "prefill", "decode", "select_next_token", "new_text", "sse_event",
    ]  # fmt: skip
    assert {step.origin for step in steps.values()} == {"reference"}
    assert str(steps["prefill"]) == "prefill: reference (none of yours is saved)"


def test_what_is_solved_and_no_step_of_the_server_is_named(mine, capsys):
    assert saved_besides(STEPS) == []
    assert capsys.readouterr().out == ""
    check(pad_left)
    assert saved_besides(STEPS) == ["pad_left"]
    assert saved_besides(["pad_left"]) == []
    learner_steps()
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "sse_event: reference (none of yours is saved)",
        "not among the server's 6 steps: pad_left",
    ]


@pytest.fixture
def pad_left_serves(monkeypatch):
    monkeypatch.setattr("tutorial_server.exercises.mine.STEPS", ("pad_left",))


def test_mine_is_yours_while_it_passes(mine, pad_left_serves):
    check(pad_left)
    step = load_mine()["pad_left"]
    assert step.origin == "yours"
    assert step.function([[5], [6, 7]], 0)[0].tolist() == [[0, 5], [6, 7]]
    assert str(step) == "pad_left: yours"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def pad_left(sequences, pad_id):\n    return 1\n", "type: Return 2 values"),
        ("def pad_left(sequences, pad_id):\n    raise NotImplementedError\n", "not written"),
        ("import not_installed_anywhere\n", "No module named 'not_installed_anywhere'"),
        ("def pad_left(:\n", "SyntaxError"),
        ("raise SystemExit\n", "does not run by itself: SystemExit"),
        ("while True:\n    pass\n", "had not finished"),
    ],
)
def test_mine_falls_back_and_says_why(text, reason, mine, pad_left_serves, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT_S", 0.5)
    write_solution(mine, text)
    step = load_mine()["pad_left"]
    assert (step.origin, step.function) == ("reference", None)
    assert step.reason.startswith("yours no longer passes: ")
    assert reason in step.reason


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "mytools.py").write_text("def width_of(rows):\n    return max(map(len, rows))\n")
    with started(folder) as kernel:
        kernel.run(
            "import os\n"
            f"os.environ['TUTORIAL_SERVER_EXERCISES'] = {str(folder / 'mine')!r}\n"
            "from tutorial_server.exercises import check\n"
            "from tutorial_server.exercises.standalone import standalone\n"
        )
        kernel.folder = folder
        yield kernel


def saved_text(kernel):
    return (kernel.folder / "mine" / "solutions" / "pad_left.py").read_text()


BODY = """\
    width = max(map(len, sequences))
    rows = [Row(s, width) for s in sequences]
    return as_ids([r.filled(pad_id) for r in rows]), as_ids([r.mask(ONE) for r in rows])
"""
PIECES = """\
import torch as t
from torch import int64, tensor as as_tensor
from dataclasses import dataclass
ONE = 1

@dataclass
class Row:
    tokens: list
    width: int

    def filled(self, pad_id):
        return [pad_id] * (self.width - len(self.tokens)) + list(self.tokens)

    def mask(self, one):
        return [0] * (self.width - len(self.tokens)) + [one] * len(self.tokens)

as_ids = lambda rows: as_tensor(rows, dtype=int64)
"""


def test_a_notebooks_classes_lambdas_and_aliases_are_taken_along(kernel):
    kernel.run(PIECES)
    kernel.run(f"def pad_left(sequences, pad_id):\n{BODY}")
    said = kernel.run("check(pad_left)")
    assert "checked again from there" in said
    text = saved_text(kernel)
    assert "@dataclass\nclass Row:" in text
    assert "from torch import int64" in text or "from torch import tensor as as_tensor" in text
    assert "as_ids = lambda rows" in text
    assert "ONE = 1" in text
    assert "import torch as t" not in text  # nothing uses it


def test_a_definition_under_a_magic_is_found(kernel):
    kernel.run(f"%%time\ndef pad_left(sequences, pad_id):\n    # timed\n{BODY}")
    assert "checked again from there" in kernel.run("check(pad_left)")
    assert "# timed" in saved_text(kernel)


def test_magics_and_commands_in_the_cell_do_no_harm(kernel):
    kernel.run(f"!true\n%matplotlib --list\ndef pad_left(sequences, pad_id):\n    # beside\n{BODY}")
    assert "checked again from there" in kernel.run("check(pad_left)")
    assert "# beside" in saved_text(kernel)
    assert "!true" not in saved_text(kernel)


def test_the_newest_definition_counts_even_an_old_cell_run_again(kernel):
    first = f"def pad_left(sequences, pad_id):\n    # first\n{BODY}"
    kernel.run(first)
    kernel.run(first.replace("# first", "# second"))
    kernel.run(first)
    kernel.run("check(pad_left)")
    assert "# first" in saved_text(kernel)


def test_a_cell_run_without_history_is_found(kernel):
    source = f"%%time\ndef pad_left(sequences, pad_id):\n    'no history'\n{BODY}"
    kernel.run(source, store_history=False)
    assert "checked again from there" in kernel.run("check(pad_left)", store_history=False)
    assert "'no history'" in saved_text(kernel)


def test_definition_and_check_in_one_cell(kernel):
    kernel.run(f"def pad_left(sequences, pad_id):\n    # one cell\n{BODY}\ncheck(pad_left)")
    assert "# one cell" in saved_text(kernel)


def test_a_class_in_a_cell_is_found(kernel):
    kernel.run("class Shape:\n    # a shape\n    rows: int = ONE")
    said = kernel.run("print(standalone(Shape, 'Shape'))")
    assert "# a shape" in said
    assert "ONE = 1" in said
    assert "missing={}" in said


def test_an_object_of_the_notebook_is_named(kernel):
    kernel.run("class Tool:\n    def __init__(self): self.parameters = 3\ntool = Tool()")
    kernel.run(f"def pad_left(sequences, pad_id):\n    tool\n{BODY}")
    before = saved_text(kernel)
    said = kernel.run("check(pad_left)")
    assert "pad_left: passed, all 9 stages" in said
    assert "leans on what can't be saved with it: `tool` (a Tool made elsewhere" in said
    assert saved_text(kernel) == before


def test_a_module_beside_the_notebook_is_named(kernel):
    kernel.run("import mytools\nfrom mytools import width_of")
    kernel.run(f"def pad_left(sequences, pad_id):\n    mytools, width_of\n{BODY}")
    said = kernel.run("check(pad_left)")
    assert "`mytools` (module mytools is a file of yours" in said
    assert "`width_of` (module mytools is a file of yours" in said


def test_a_report_at_the_end_of_a_cell_is_shown_once(kernel):
    kernel.run(f"def pad_left(sequences, pad_id):\n{BODY}")
    (output,) = kernel.outputs("check(pad_left)")
    assert sorted(output.data) == ["text/html", "text/plain"]
    (again,) = kernel.outputs("r = check(pad_left)")
    assert again.data["text/plain"] == output.data["text/plain"]
    (later,) = kernel.outputs("r")
    assert later.data["text/html"] == output.data["text/html"]


def test_an_exception_shows_the_line_of_the_cell(kernel):
    kernel.run("def pad_left(sequences, pad_id):\n    n = 3\n    return sequences[n]")
    said = kernel.run("check(pad_left)")
    assert "IndexError: list index out of range" in said
    assert "in line 3: return sequences[n]" in said


def test_what_the_function_prints_stays_in_the_report(kernel):
    kernel.run("def pad_left(sequences, pad_id):\n    print('looking', len(sequences))")
    (output,) = kernel.outputs("check(pad_left)")
    assert "it printed  looking 2" in output.data["text/plain"]

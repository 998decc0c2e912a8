"""A learner's copies and progress: made once, begun anew one task at a time, never lost."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from kernels import started

import tutorial_server
from tutorial_server.exercises import check, copies, folder, hint, prepare, progress, reset
from tutorial_server.exercises.registry import LESSONS
from tutorial_server.padding import position_ids as reference

NAME = "02_attention_masks_and_padding.ipynb"
STUB = 'def pad_left(sequences, pad_id):\n    raise NotImplementedError("pad_left")'
HUNT = "def append_tokens(ids, mask, tokens):\n    return ids, mask, tokens"


def cell(name, source, **metadata):
    return {
        "cell_type": "code",
        "id": name,
        "metadata": metadata,
        "execution_count": 1,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}],
        "source": source.splitlines(True),
    }


def write_book(path, *cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    book = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(book, indent=1) + "\n")


def sources(path):
    return ["".join(c["source"]) for c in json.loads(path.read_text())["cells"]]


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    root = tmp_path / "course"
    write_book(root / "notebooks" / "00_first_answer.ipynb")
    write_book(
        root / "exercises" / NAME,
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "[x](../notebooks/00_a)"},
        cell("pad-left-stub", STUB, task="pad_left"),
        cell("append-tokens-stub", HUNT, task="append_tokens"),
    )
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def copy(course, mine) -> Path:
    prepare()
    return mine / NAME


def test_the_variable_says_where(mine):
    assert folder.mine() == mine


def test_without_it_the_copies_lie_in_the_course(course, monkeypatch):
    monkeypatch.delenv("TUTORIAL_SERVER_EXERCISES")
    assert folder.mine() == course / "exercises" / "mine"
    (course / "exercises" / "mine").mkdir()
    monkeypatch.chdir(course / "exercises" / "mine")
    assert folder.mine() == course / "exercises" / "mine"


def test_without_a_course_they_lie_in_the_users_data(tmp_path, monkeypatch):
    monkeypatch.delenv("TUTORIAL_SERVER_EXERCISES")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folder, "course", lambda: None)
    assert folder.mine().parts[-2:] == ("tutorial_server", "exercises")
    assert prepare() == []


def test_copies_are_made_once_and_an_update_overwrites_nothing(course, mine):
    assert prepare() == [mine / NAME]
    (mine / NAME).write_text("mine now")
    (course / "exercises" / NAME).write_text("a newer one")
    assert prepare() == []
    assert (mine / NAME).read_text() == "mine now"


def test_a_copy_has_no_outputs_yet(copy):
    cells = json.loads(copy.read_text())["cells"]
    assert [c["outputs"] for c in cells if c["cell_type"] == "code"] == [[], []]


def test_links_to_the_lessons_still_lead_there(copy, course):
    link = sources(copy)[0].removeprefix("[x](").removesuffix(")")
    assert (copy.parent / link).resolve() == course / "notebooks" / "00_a"


def edit(path, name, source):
    book = json.loads(path.read_text())
    next(c for c in book["cells"] if c["id"] == name)["source"] = source
    path.write_text(json.dumps(book))


def test_reset_restores_one_cell_and_keeps_what_was_there(copy, mine, capsys):
    edit(copy, "pad-left-stub", "my pad_left")
    edit(copy, "append-tokens-stub", "my append_tokens")
    (mine / "solutions").mkdir()
    (mine / "solutions" / "pad_left.py").write_text("my saved one")
    progress.passed("pad_left")
    reset("pad_left")
    said = capsys.readouterr().out
    assert sources(copy)[1:] == [STUB, "my append_tokens"]
    kept = {f.name: f.read_text() for f in (mine / "backups").iterdir()}
    assert kept == {"pad_left.1.py": "my saved one", "pad_left.cell.1.py": "my pad_left\n"}
    assert not (mine / "solutions" / "pad_left.py").exists()
    assert progress.state("pad_left") == "not started"
    assert said.startswith("pad_left is as if never started.")
    assert "backups/pad_left.1.py" in said
    assert "holds the stub again" in said
    assert json.loads(copy.read_text())["cells"][1]["outputs"] == []


def test_reset_puts_a_lost_cell_at_the_end(copy):
    book = json.loads(copy.read_text())
    del book["cells"][1]
    copy.write_text(json.dumps(book))
    reset("pad_left")
    assert sources(copy)[-1] == STUB


def test_reset_of_an_untouched_task_changes_nothing(copy, capsys):
    before = sources(copy)
    reset("pad_left")
    assert sources(copy) == before
    assert "What you wrote" not in capsys.readouterr().out


def test_reset_forgets_the_hints_and_nothing_of_other_tasks(copy, capsys):
    hint("pad_left")
    hint("position_ids")
    reset("pad_left")
    assert progress.entry("pad_left") == {}
    assert progress.entry("position_ids") == {"hints": 1}


def test_a_copy_that_is_no_notebook_is_left_alone(copy, capsys):
    copy.write_text("{ spoilt")
    reset("pad_left")
    assert "Nothing was reset: " in capsys.readouterr().out
    assert copy.read_text() == "{ spoilt"


def test_the_courses_own_notebook_sends_one_to_the_copy(course, mine, monkeypatch, capsys):
    monkeypatch.setenv("JPY_SESSION_NAME", str(course / "exercises" / NAME))
    check(position_ids)
    assert f"Work in your copy: {mine / NAME}" in capsys.readouterr().out
    assert (mine / NAME).exists()
    monkeypatch.setenv("JPY_SESSION_NAME", str(mine / NAME))
    check(position_ids)
    assert "Work in your copy" not in capsys.readouterr().out


def position_ids(mask):
    return reference(mask)


def append_tokens(ids, mask, tokens):
    return ids, mask, tokens


def test_a_hunt_that_was_not_touched_was_not_tried(course):
    check(append_tokens)
    assert progress.state("append_tokens") == "not started"
    edit(course / "exercises" / NAME, "append-tokens-stub", "something else")
    check(append_tokens)
    assert progress.state("append_tokens") == "tried"


def test_what_has_passed_stays_passed_when_a_later_try_fails(mine):
    assert check(position_ids)
    progress.tried("position_ids")
    assert progress.state("position_ids") == "passed"
    (mine / "progress.json").unlink()
    assert progress.state("position_ids") == "passed"  # its solution is there


@pytest.mark.parametrize(
    "spoilt", ["", "{", "[]", "null", '{"tasks": 3}', '{"tasks": {"pad_left": 1}}', "\x00\x01"]
)
def test_a_spoilt_progress_file_is_set_aside_and_begun_anew(spoilt, mine):
    mine.mkdir()
    (mine / "progress.json").write_text(spoilt)
    assert progress.state("pad_left") == "not started"
    progress.tried("pad_left")
    assert progress.state("pad_left") == "tried"
    kept = [f.read_text() for f in (mine / "backups").iterdir()] if spoilt else [""]
    assert kept == [spoilt]


def test_odd_entries_do_no_harm(mine):
    mine.mkdir()
    text = json.dumps({"tasks": {"pad_left": {"state": "odd", "hints": "many"}}})
    (mine / "progress.json").write_text(text)
    assert progress.state("pad_left") == "not started"
    assert progress.next_hint("pad_left") == 1


def note_many(numbers):
    for number in numbers:
        progress.tried(f"task_{number}")


def test_two_processes_lose_nothing_of_each_other(mine):
    context = multiprocessing.get_context("fork")
    parts = [range(25), range(25, 50)]
    workers = [context.Process(target=note_many, args=(part,)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tasks = json.loads((mine / "progress.json").read_text())["tasks"]
    assert tasks == {f"task_{n}": {"state": "tried"} for n in range(50)}


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "file"
    folder.write(file, "old")

    def fail(*_):
        raise OSError("full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        folder.write(file, "new")
    assert [f.read_text() for f in tmp_path.iterdir()] == ["old"]


def test_backups_take_the_next_free_number(mine):
    names = [folder.back_up(text, "a.py").name for text in ("one", "two", "one")]
    assert names == ["a.1.py", "a.2.py", "a.1.py"]


def test_notebooks_share_the_lessons_names():
    assert [lesson.notebook for lesson in LESSONS] == [
        "01_tokens_and_chat_templates.ipynb",
        "02_attention_masks_and_padding.ipynb",
        "03_prefill.ipynb",
        "04_sampling.ipynb",
        "05_kv_cached_decoding.ipynb",
        "06_streaming.ipynb",
        "07_the_server.ipynb",
        "08_the_model_with_its_cover_off.ipynb",
        "09_many_users.ipynb",
    ]


def test_in_a_notebook_reset_wants_it_saved_first(copy, course, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", str(copy))
    monkeypatch.setenv("PYTHONPATH", str(Path(tutorial_server.__file__).parents[1]))
    edit(copy, "pad-left-stub", "def pad_left(sequences, pad_id):\n    return 'mine'")
    call = "reset(pad_left)"
    with started(course) as kernel:
        kernel.run("from tutorial_server.exercises import reset")
        kernel.run("def pad_left(sequences, pad_id):\n    return 'newer'")
        assert "Save this notebook first" in kernel.run(call)
        assert STUB not in sources(copy)
        book = json.loads(copy.read_text())
        book["cells"].append(cell("call", call))
        copy.write_text(json.dumps(book))
        assert "File, Reload Notebook from Disk" in kernel.run(call)
    assert STUB in sources(copy)
    kept = [f.read_text() for f in sorted((folder.mine() / "backups").iterdir())]
    assert [text.split("'")[1] for text in kept] == ["newer", "mine"]


def test_prepare_copies_every_notebook_that_there_is(course, mine):
    write_book(course / "exercises" / "03_prefill.ipynb")
    assert [p.name for p in copies.prepare()] == [NAME, "03_prefill.ipynb"]

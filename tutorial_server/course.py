"""Where the course lies, and how to open it."""

import os
from collections.abc import Sequence
from pathlib import Path

from .errors import TutorialServerError

FIRST_LESSON = "00_first_answer.ipynb"


def course_folder() -> Path:
    """Find the clone: the working folder or one above it, else where the package lies.

    Raises TutorialServerError where there are no notebooks.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (folder / "notebooks" / FIRST_LESSON).is_file():
            return folder
    raise TutorialServerError(
        "The course's notebooks are not here; clone the project, and run this in its folder."
    )


def open_lab(arguments: Sequence[str] = ()) -> int:
    """Open JupyterLab on the first lesson; returns when it is closed."""
    from jupyterlab.labapp import main

    from .exercises import prepare

    folder = course_folder()
    if copies := prepare():
        print(f"Your own copies of the exercises are now in {copies[0].parent}", flush=True)
    os.chdir(folder)
    # Without root_dir JupyterLab would show the folder of the lesson alone.
    main([f"--ServerApp.root_dir={folder}", f"notebooks/{FIRST_LESSON}", *arguments])
    return 0

"""Exercises that check themselves: write a function in a cell, then `check(fn)`.

Nothing here imports torch; a lesson's cases do, when its first task is looked for.
"""

from .copies import prepare
from .learner import check, hint, reset, reveal, status
from .mine import MineStep, load_mine, saved_besides
from .overview import check_saved, print_saved, status_text
from .report import Report

__all__ = [
    "MineStep",
    "Report",
    "check",
    "check_saved",
    "hint",
    "load_mine",
    "prepare",
    "print_saved",
    "reset",
    "reveal",
    "saved_besides",
    "status",
    "status_text",
]

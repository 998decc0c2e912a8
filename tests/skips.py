"""What a test does where the machine lacks what it needs."""

import os
from typing import NoReturn

import pytest

NO_SKIPS = "TUTORIAL_SERVER_NO_SKIPS"


def skip_or_fail(reason: str) -> NoReturn:
    """Skip with a reason; fail instead where `TUTORIAL_SERVER_NO_SKIPS=1` says that all is here."""
    if os.environ.get(NO_SKIPS) == "1":
        pytest.fail(f"{reason} ({NO_SKIPS}=1 allows no skips)", pytrace=False)
    pytest.skip(reason)

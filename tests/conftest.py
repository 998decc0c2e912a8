"""Pin what the tests run on, so that they mean the same on every machine."""

import os

PINNED = {
    "HF_HUB_OFFLINE": "1",
    "TUTORIAL_SERVER_DEVICE": "cpu",
    "TUTORIAL_SERVER_DTYPE": "float32",
    "OMP_WAIT_POLICY": "PASSIVE",  # two test runs beside each other stay usable
}
os.environ.update(PINNED)
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.pop("TUTORIAL_SERVER_MODEL", None)

import pytest  # noqa: E402  the environment comes before torch

from tutorial_server.models import LLM, load_model  # noqa: E402


@pytest.fixture(scope="session")
def small() -> LLM:
    """The real small model, loaded once for the whole run."""
    return load_model("smollm2-135m")

"""Pin what the tests run on, so that they mean the same on every machine."""

import os
import tempfile

KEPT = ("TUTORIAL_SERVER_CACHE", "TUTORIAL_SERVER_NO_SKIPS")
PINNED = {
    "HF_HUB_OFFLINE": "1",
    "TUTORIAL_SERVER_DEVICE": "cpu",
    "TUTORIAL_SERVER_DTYPE": "float32",
    "TUTORIAL_SERVER_EXERCISES": os.path.join(
        tempfile.gettempdir(), "tutorial-server-no-exercises"
    ),
    "OMP_WAIT_POLICY": "PASSIVE",  # two test runs beside each other stay usable
}
for name in [n for n in os.environ if n.startswith("TUTORIAL_SERVER_") and n not in KEPT]:
    del os.environ[name]
os.environ.update(PINNED)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests themselves run two at a time

import pytest  # noqa: E402  the environment comes before torch

from tutorial_server.config import Settings  # noqa: E402
from tutorial_server.loading.small_model import small_model_folder  # noqa: E402
from tutorial_server.models import LLM, load_model  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """Have the small model there before the first lesson runs: fetching it would say so."""
    if not hasattr(config, "workerinput"):
        small_model_folder(Settings().cache)


@pytest.fixture(scope="session")
def small() -> LLM:
    """The real small model, loaded once for the whole run."""
    return load_model("smollm2-135m")

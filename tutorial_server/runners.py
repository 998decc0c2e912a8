"""Which runner serves a model, and says so."""

import logging

from . import runner
from .config import Settings
from .models import LLM
from .runner import Runner, TransformersRunner
from .slot_runner import SlotRunner
from .steps import Steps
from .transformer import why_not

log = logging.getLogger("tutorial_server")


def choose_runner(llm: LLM, settings: Settings, steps: Steps) -> Runner:
    """Give many rows where the model can be opened and its steps are ours, else one.

    A learner's `prefill` and `decode` call transformers' own forward, and so does a model
    outside the family that `transformer.py` knows.
    """
    if steps.prefill is not runner.prefill or steps.decode is not runner.decode:
        log.info("one answer at a time: prefill or decode is not the package's own")
    elif reason := why_not(llm):
        log.warning("one answer at a time, through transformers' own forward: %s", reason)
    else:
        return SlotRunner.within(llm, settings.kv_cache_gb * 1e9, settings.max_running)
    return TransformersRunner(llm, steps.prefill, steps.decode)

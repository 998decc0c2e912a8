import logging
import warnings

import pytest
from huggingface_hub.utils import logging as hub_logging
from transformers.utils import logging as transformers_logging

from tutorial_server.loading.quiet import first_sentence, quiet


def levels() -> tuple[int, int]:
    return transformers_logging.get_verbosity(), hub_logging.get_verbosity()


def test_chatter_is_silent_inside_and_as_before_outside(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = levels()
    with quiet():
        assert levels() == (logging.ERROR, logging.ERROR)
        transformers_logging.get_logger("transformers.x").warning("chatter")
        warnings.warn("chatter", stacklevel=1)
        for _ in transformers_logging.tqdm(range(3)):
            pass
    assert "chatter" not in capfd.readouterr().err
    assert levels() == before
    assert transformers_logging.set_tqdm_hook(None) is None


def test_the_old_state_comes_back_after_an_error() -> None:
    before = levels()
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert levels() == before


def test_bars_come_late_or_never() -> None:
    with quiet():
        assert transformers_logging.tqdm(range(3)).delay == 1
    with quiet(bars=False):
        assert transformers_logging.tqdm(range(3)).disable


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("One. Two.\nThree"), "One"),
        (ValueError("version 1.2 is\n  too old!"), "version 1.2 is too old"),
        (KeyError("name"), "'name'"),
        (ValueError(), "ValueError"),
    ],
)
def test_first_sentence(error: Exception, sentence: str) -> None:
    assert first_sentence(error) == sentence


def test_first_sentence_is_short() -> None:
    assert first_sentence(ValueError("word " * 100)).endswith("word …")
    assert len(first_sentence(ValueError("word " * 100))) <= 120

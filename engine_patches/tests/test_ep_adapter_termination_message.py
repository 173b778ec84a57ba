"""An engine's last words, from log lines as vLLM writes them."""

import logging

import pytest

from headrace_engine.adapter import termination_message


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "termination-log"
    file.touch()
    return file


@pytest.fixture
def vllm(file):
    logger = logging.getLogger("vllm")
    before = list(logger.handlers)
    termination_message.install_handler(file)
    yield logging.getLogger("vllm.v1.engine.core")
    logger.handlers = before


def fails(logger, text, error):
    logger.error(text, exc_info=error)


def test_the_first_fatal_error_is_kept(vllm, file):
    fails(vllm, "Invocation of %s method failed", ValueError("one request's"))
    vllm.error("something else")
    assert file.read_text() == ""
    fails(vllm, "EngineCore encountered a fatal error.", MemoryError("no block\n  is free"))
    fails(vllm, "AsyncLLM output_handler failed.", RuntimeError("EngineCore encountered an issue."))
    assert file.read_text() == "MemoryError: no block is free"


def test_a_worker_that_died_is_named(vllm, file):
    vllm.error("Worker proc %s died unexpectedly (exit code: %s), shutting down.", "W0", -9)
    assert file.read_text() == "Worker proc W0 died unexpectedly (exit code: -9), shutting down."


def test_words_are_cut(vllm, file):
    fails(vllm, "EngineCore failed to start.", ValueError("é" * 9000))
    assert file.read_text() == ("ValueError: " + "é" * 9000)[:1000]


def test_without_the_kubelets_file_nothing_is_kept(tmp_path):
    before = list(logging.getLogger("vllm").handlers)
    termination_message.install_handler(tmp_path / "none")
    assert logging.getLogger("vllm").handlers == before
    keeper = termination_message._FatalErrorHandler(tmp_path / "none")
    keeper.handle(logging.LogRecord("vllm", logging.ERROR, "x", 1, "EngineCore failed to start.", (), None))


def test_a_line_that_can_not_be_formatted_does_no_harm(file):
    keeper = termination_message._FatalErrorHandler(file)
    keeper.handle(logging.LogRecord("vllm.x", logging.ERROR, "x.py", 1, "Worker proc %d", ("W0",), None))
    assert file.read_text() == ""

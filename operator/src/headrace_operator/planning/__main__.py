"""`python -m headrace_operator.planning`: a question as JSON on stdin, its answer as JSON on stdout."""

from __future__ import annotations

import os
import sys

from headrace_operator.planning.answer import make_answer
from headrace_operator.planning.question import Answer, Question, dump_json, load_json

_NICE = 10  # the operator beside it goes first


def main() -> None:
    """Answer one question."""
    os.nice(_NICE)
    question = load_json(Question, sys.stdin.buffer.read())
    sys.stdout.buffer.write(dump_json(Answer, make_answer(question)))


if __name__ == "__main__":
    main()

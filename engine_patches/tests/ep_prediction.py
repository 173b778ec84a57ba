"""What the tests of predictors share."""

from headrace_engine.prediction import Features


def told(predictor, lengths, **features):
    """`predictor` after requests with these features and outputs."""
    for length in lengths:
        predictor.learn(Features(**({"prompt_tokens": 100, "max_tokens": 10_000} | features)), length)
    return predictor


def asked(prompt=100, limit=10_000, **more):
    return Features(prompt, limit, **more)

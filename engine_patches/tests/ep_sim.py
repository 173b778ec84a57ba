"""A small engine, a load that is too much for its KV cache, and step costs that are easy to add up."""

import random

from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

BLOCK = 16


class Line:
    """Seconds of a step: a fixed part and one for each token. Keeps what it was asked."""

    profile = None

    def __init__(self, fixed=0.005, per_token=0.00005):
        self.fixed, self.per_token, self.batches = fixed, per_token, []

    def step_seconds(self, batch):
        self.batches.append(batch)
        return self.fixed + self.per_token * (batch.prefill_tokens + batch.decodes)

    def attention_seconds(self, batch):
        return 0.0


def settings(**changed):
    small = {"num_blocks": 256, "block_size": BLOCK, "max_num_seqs": 32, "max_num_batched_tokens": 512}
    return EngineSettings(**(small | {"max_model_len": 2048} | changed))


def load(count=80, per_second=20.0, seed=3):
    """Poisson arrivals; about half of the prompts begin with one of three long prefixes."""
    rng, at, arrivals = random.Random(seed), 0.0, []
    for number in range(count):
        at += rng.expovariate(per_second)
        prompt, output = rng.randrange(8, 900), rng.randrange(2, 200)
        family, shared = rng.randrange(3), rng.choice([0, 0, 2, 5])
        ids = [family * 10 + i if i < shared else 1000 + number * 10 + i for i in range(-(-prompt // 100))]
        arrivals.append(Arrival(at, prompt, output, tuple(ids), 100))
    return arrivals

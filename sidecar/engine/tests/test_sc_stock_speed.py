"""The prefill rate of a stock engine, from the counters of one whose steps are known."""

import random

import pytest

from headrace_engine.cost.model import STEP_TOKENS
from headrace_sidecar.stock_speed import StockSpeed, Totals

FIXED, A_PROMPT_TOKEN, A_DECODE = 0.010, 50e-6, 100e-6
TRUE = STEP_TOKENS / (FIXED + STEP_TOKENS * A_PROMPT_TOKEN)
OUTPUT = 100


def counters(per_second, burst, prompt, seconds=400, seed=1):
    """(time, Totals) once a second, of bursts of requests on an engine that prefills whatever fits a step."""
    rng = random.Random(seed)
    now, arrival, next_look = 0.0, 0.0, 1.0
    waiting, running = [], []  # prompt tokens left and start; output tokens left
    computed = generated = steps = prefill_seconds = 0
    while now < seconds:
        while arrival <= now:
            waiting += [[prompt, None] for _ in range(burst)]
            arrival += rng.expovariate(per_second / burst)
        if not (waiting or running):
            now = min(arrival, next_look)
        else:
            room, tokens, done = STEP_TOKENS - len(running), 0, []
            for each in waiting:
                chunk = min(each[0], room)
                if not chunk:
                    break
                each[1] = now if each[1] is None else each[1]
                each[0], room, tokens = each[0] - chunk, room - chunk, tokens + chunk
                if not each[0]:
                    done.append(each)
            now += FIXED + tokens * A_PROMPT_TOKEN + len(running) * A_DECODE
            steps += 1
            generated += len(running) + len(done)
            running = [left - 1 for left in running if left > 1] + [OUTPUT - 1] * len(done)
            waiting = [each for each in waiting if each[0]]
            computed += prompt * len(done)
            prefill_seconds += sum(now - started for _, started in done)
        if now >= next_look:
            next_look = now + 1
            yield now, Totals(computed, generated, steps, prefill_seconds, len(running) + len(waiting))


@pytest.mark.parametrize(
    ("per_second", "burst", "prompt"),
    [(3, 1, 1500), (20, 10, 100), (10, 5, 1000), (4, 4, 3000), (60, 30, 100), (16, 16, 1000)],
)
def test_prompts_that_prefill_together_are_not_counted_one_by_one(per_second, burst, prompt):
    speed = StockSpeed()
    for now, totals in counters(per_second, burst, prompt):
        speed.add(now, totals)
    assert 0.6 * TRUE < speed.prefill_tokens_per_second() < 1.5 * TRUE


def test_alone_and_mostly_idle_it_is_the_rate_of_single_requests():
    speed = StockSpeed()
    for now, totals in counters(0.1, 1, 2000):
        speed.add(now, totals)
    assert 0.6 * TRUE < speed.prefill_tokens_per_second() < 1.2 * TRUE


def test_another_life_of_the_engine_begins_anew():
    speed = StockSpeed()
    for now, totals in counters(10, 5, 1000):
        speed.add(now, totals)
    speed.add(500.0, Totals(0, 0, 0, 0, 0))
    assert speed.prefill_tokens_per_second() == 0

"""How well output lengths are predicted, and what that costs: `python -m e2e.bench.prediction`.

Each workload's requests arrive in the order of the trace. A request is predicted when it arrives and
learned from when it finishes, `PREFILL` and `PER_TOKEN` seconds per output token later, as on an engine
that is not overloaded. Lengths without times arrive at `RATE`. The first `WARM_UP` requests are not
measured.

The figures, for the median (`predictor: Quantile`, `quantilePercent: 50`) unless their name says
otherwise:

- `accuracy_percent`: requests whose output fits in the prediction padded by `PADDING` percent. That is
  our reading of EconoServe's "prediction accuracy", 73.2 % for ShareGPT at the same padding: it is told
  beside the percentage of under-provisioned requests, figure 4c, and falls and rises with the padding.
- `near_percent`: requests whose output is within `PADDING` percent of the unpadded prediction, either
  way: the other reading, and the stricter.
- `over_percent`, `under_percent`: KV allocated and not used, or used and not allocated, of what was
  allocated for the padded prediction, mean over requests [EconoServe, figure 5a]. A few requests of a
  hundred times the predicted length make the second large, so `under_total_percent` is that of all tokens
  together.
- `over_share_percent`, `under_share_percent`: requests predicted too long and too short, unpadded.
- `calibration_50_percent`, `calibration_80_percent`: outputs that are at most the predicted quantile;
  ideally 50 and 80.
- `padding_percent`: the padding found online that leaves at most 25 % of requests too short, at the end,
  and `padded_under_share_percent`, the share that really was too short.
- `outgrown_calibration_percent`: of requests that outgrew their prediction, those whose output is at most
  what was then predicted; ideally 50.
- `mean_absolute_error` in tokens, and `mean_absolute_error_none` of the running mean (`predictor: None`).
- `microseconds_per_request`: to predict once and learn once; the median over requests.

No workload in the repository has text, so `Learned` is measured on `synthetic-text`: made-up prompts in
which rare tokens hint at the length, see `synthetic_text`. It shows that the machinery learns, not how
well it would on real text. It trains as much as it would live, but not at the same time as the requests
are served.
"""

import heapq
import itertools
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.report import results
from e2e.bench.runs import workloads
from e2e.bench.runs.command_line import describe
from e2e.data import recorded
from headrace_engine.prediction import Features, Padding, Predictor, Quantile, RunningMean
from headrace_engine.prediction.learned import Learned
from headrace_engine.sim.workloads.arrival import Arrival

PADDING = 15  # percent, EconoServe's for ShareGPT
RATE = 5.0  # requests/s of lengths without times
PREFILL, PER_TOKEN = 1.0, 0.03  # seconds
WARM_UP = 1000  # requests
CONTEXT = 131_072
SOAK = 200_000  # requests
SERVEGEN_REQUESTS = 10_000
TEXT_REQUESTS = 8000
TABLE = {  # its columns: a figure each, and its heading
    "accuracy_percent": "fits when padded, %",
    "near_percent": "near, %",
    "calibration_50_percent": "at most the prediction, %",
    "over_percent": "KV over, %",
    "under_percent": "KV under, %",
    "padding_percent": "padding for 25 % too short, %",
    "mean_absolute_error": "error, tokens",
    "mean_absolute_error_none": "error of `None`, tokens",
    "microseconds_per_request": "µs",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: when it arrives, what a predictor sees, and what it does not."""

    at: float
    features: Features
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What was predicted at arrival, and again when that was outgrown, of a request with `output_tokens`."""

    predicted: float
    again: float | None
    padding: int
    output_tokens: int
    microseconds: float


def main() -> None:
    """Measure and write the figures."""
    parser = describe(__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="of each workload (default %(default)s)")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name, asked in all_workloads(arguments.requests):
        figures |= report(name, measure(asked))
    text = synthetic_text(min(TEXT_REQUESTS, arguments.requests), seed=0)
    figures |= report("synthetic-text", measure(text))
    learned = Learned(Quantile())
    figures |= report("synthetic-text_learned", summarize_answers(replay(learned, text, learned.work)))
    figures |= report("soak", soak(min(SOAK, 10 * arguments.requests)))
    command = f"python -m e2e.bench.prediction --requests {arguments.requests}"
    print(results.write("prediction", command, figures))
    (results.RESULTS / "prediction.md").write_text(page(figures))


def report(workload: str, measured: dict[str, float]) -> dict[str, float]:
    """Show a workload's figures, and name them by it."""
    print(workload)
    for key, value in measured.items():
        print(f"  {key:32}{value:10.1f}", flush=True)
    return {f"{workload.replace('-', '_')}_{key}": round(value, 2) for key, value in measured.items()}


def page(figures: Mapping[str, float]) -> str:
    """Make a table of the workloads; the module says what its columns mean."""
    key = "_accuracy_percent"
    names = [name.removesuffix(key) for name in figures if name.endswith(key)]
    rows = [["workload", *TABLE.values()], ["---", *("---:" for _ in TABLE)]]
    for name in names:
        told = [figures.get(f"{name}_{each}") for each in TABLE]
        rows.append([name.replace("_", "-"), *("" if each is None else f"{each:.1f}" for each in told)])
    lines = ["# Predicted output lengths", "", *("| " + " | ".join(row) + " |" for row in rows), ""]
    explained = (
        "`e2e/bench/prediction.py` says what the columns are, and docs/prediction.md what to make of them."
    )
    soaked, grew = figures["soak_requests"], figures["soak_growth_kib"]
    lines += [explained, f"Over {soaked:,.0f} requests that all differ, memory grew by {grew:,.0f} KiB."]
    return "\n".join(lines) + "\n"


def all_workloads(most: int) -> Iterable[tuple[str, list[Asked]]]:
    """Yield those with recorded lengths, and ServeGen's clients."""
    for name, read in workloads.LENGTHS.items():
        if name.endswith("_synthetic"):
            continue
        arrivals = read()[:most]
        timed = name in workloads.RECORDED
        yield name, [asked(each, each.at if timed else at / RATE) for at, each in enumerate(arrivals)]
    for service in ("m-small", "m-large", "deepseek-r1"):
        name = workloads.SERVEGEN + service
        made = workloads.make(name, min(SERVEGEN_REQUESTS, most), RATE, 0, CONTEXT)
        yield name, [asked(each, each.at) for each in made]


def asked(arrival: Arrival, at: float) -> Asked:
    """Make a request of a trace, with what an engine knows of it; `max_tokens` is in no trace."""
    prefix = arrival.prefix[0] if arrival.prefix else 0
    features = Features(arrival.prompt_tokens, CONTEXT - arrival.prompt_tokens, prefix)
    return Asked(at, features, arrival.output_tokens)


def measure(requests: Sequence[Asked]) -> dict[str, float]:
    """Measure all figures of `Quantile` on one workload."""
    figures = summarize_answers(replay(Quantile(), requests))
    high = replay(Quantile(0.8), requests)[WARM_UP:]
    figures["calibration_80_percent"] = percent(each.output_tokens <= each.predicted for each in high)
    mean = replay(RunningMean(), requests)[WARM_UP:]
    figures["mean_absolute_error_none"] = statistics.fmean(
        abs(each.predicted - each.output_tokens) for each in mean
    )
    return figures


def replay(
    predictor: Predictor, requests: Sequence[Asked], train: Callable[[], object] = lambda: None
) -> list[Answered]:
    """Predict each request when it arrives, learn from it when it has finished, and `train` then."""
    under_way: list[tuple[float, int, Asked, float]] = []
    padding, answers, number = Padding(), [], itertools.count()
    clock, learning = time.perf_counter_ns, 0.0
    for request in requests:
        while under_way and under_way[0][0] <= request.at:
            _, _, done, predicted = heapq.heappop(under_way)
            begun = clock()
            predictor.learn(done.features, done.output_tokens)
            learning = (clock() - begun) / 1000
            padding.record_finished(predicted, done.output_tokens)
            train()
        begun = clock()
        predicted = predictor.predict(request.features)
        spent = (clock() - begun) / 1000 + learning
        again = None
        if request.output_tokens > predicted:
            again = predictor.repredict(request.features, int(predicted))
        answers.append(Answered(predicted, again, padding.percent, request.output_tokens, spent))
        ends = request.at + PREFILL + PER_TOKEN * request.output_tokens
        heapq.heappush(under_way, (ends, next(number), request, predicted))
    return answers


def summarize_answers(answers: Sequence[Answered]) -> dict[str, float]:
    """Return the figures of what was predicted after the warm-up."""
    counted = answers[WARM_UP:]
    pairs = [(each.predicted, each.output_tokens) for each in counted]
    allocated = [(max(1, round(told * (1 + PADDING / 100))), real) for told, real in pairs]
    again = [(each.again, each.output_tokens) for each in counted if each.again is not None]
    under = [max(0, real - given) for given, real in allocated]
    return {
        "accuracy_percent": percent(real <= given for given, real in allocated),
        "near_percent": percent(abs(real - told) <= told * PADDING / 100 for told, real in pairs),
        "over_percent": 100 * statistics.fmean(max(0, given - real) / given for given, real in allocated),
        "under_percent": 100
        * statistics.fmean(u / given for u, (given, _) in zip(under, allocated, strict=True)),
        "under_total_percent": 100 * sum(under) / sum(given for given, _ in allocated),
        "over_share_percent": percent(real < told for told, real in pairs),
        "under_share_percent": percent(real > told for told, real in pairs),
        "calibration_50_percent": percent(real <= told for told, real in pairs),
        "outgrown_calibration_percent": percent(real <= told for told, real in again),
        "padding_percent": counted[-1].padding,
        "padded_under_share_percent": percent(
            each.output_tokens > each.predicted * (1 + each.padding / 100) for each in counted
        ),
        "mean_absolute_error": statistics.fmean(abs(told - real) for told, real in pairs),
        "microseconds_per_request": statistics.median(each.microseconds for each in counted),
    }


def percent(them: Iterable[bool]) -> float:
    """Return how many of them are true, in percent."""
    return 100 * statistics.fmean(them)


def synthetic_text(count: int, seed: int) -> list[Asked]:
    """Make prompts with ShareGPT's prompt lengths.

    Nine of ten tokens say nothing and are drawn by Zipf's law; the others are words of the prompt's topic, of
    which there are 100 with 20 words each. A topic's outputs are log-normal (sigma 0.4) about a median of its
    own, itself log-normal (sigma 1) about 200 tokens.
    """
    chance = random.Random(seed)
    vocabulary = range(30_000)
    common = list(itertools.accumulate(1 / (rank + 1) for rank in vocabulary))
    topics = [(chance.sample(range(5000, 30_000), 20), 200 * chance.lognormvariate(0, 1)) for _ in range(100)]
    lengths = [each.prompt_tokens for each in recorded.sharegpt()]
    made = []
    for number in range(count):
        words, median = chance.choice(topics)
        length = chance.choice(lengths)
        tokens = chance.choices(vocabulary, cum_weights=common, k=length)
        for place in range(0, length, 10):
            tokens[place] = chance.choice(words)
        output = max(1, round(median * chance.lognormvariate(0, 0.4)))
        features = Features(length, CONTEXT - length, 0, None, tokens)
        made.append(Asked(number / RATE, features, output))
    return made


def soak(requests: int) -> dict[str, float]:
    """Measure memory and time of `Quantile` over requests that all differ."""
    chance, predictor, padding = random.Random(0), Quantile(), Padding()
    settled, begun = resident(), time.perf_counter()
    for number in range(requests):
        features = Features(chance.randrange(100_000), chance.randrange(1, 100_000), number)
        length = chance.randrange(10_000)
        padding.record_finished(predictor.predict(features), length)
        predictor.learn(features, length)
        if number == requests // 4:
            settled = resident()
    return {
        "requests": requests,
        "growth_kib": (resident() - settled) / 1024,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "mean_microseconds_per_request": (time.perf_counter() - begun) / requests * 1e6,
    }


def resident() -> int:
    """Return the bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()

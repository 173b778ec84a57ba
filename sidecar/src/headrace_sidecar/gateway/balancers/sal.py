"""SAL: the engine on which the request would wait least, in seconds [paper 4.2, Eq. 2; our reading].

    load(s, r) = max(queued prefill tokens of s with r / prefill tokens per second of s,
                     (KV needed on s with r - KV free on s) / KV released per second on s)

The first term is the time until all queued prompts are computed, the second the time until memory for them
is there. Both count what the picker sent since the last report. KV is in blocks. A running request frees
its prompt and output, i + o tokens, once in o steps, so a step releases running * (i + o) / o tokens
(Gross), and running * i / o when what the decodes consume meanwhile is taken off (Net).

Ours:
- A report counts the prompt tokens that no step has taken up. Those in the step under way, most of a short
  queue, it leaves out. So the picker keeps for each engine when the prefills that it sent should be done
  (`Endpoint.busy_until`), and lets each report correct that.
- Where reports stay away, the engine is taken to go on at its rate. Otherwise all requests herd to the engine
  whose report came last.
- Tokens in the engine's prefix cache need no prefill; KV they do need. To compute them again elsewhere may be
  the shortest wait for the request, but makes all behind it wait, so under a queue it counts several times.
- Waits closer than `TIE_SECONDS` are equal, and the engine that holds fewer requests wins, then the one not
  chosen for longest. With no queue anywhere all waits are about equal, and decodes should spread too.
"""

from collections.abc import Sequence
from math import ceil

from headrace_engine.contracts import LoadReport
from headrace_sidecar.gateway.balancers.context import Context, Rates
from headrace_sidecar.gateway.endpoint import Endpoint, Work

TIE_SECONDS = 0.01  # less than one step of most models: no wait that a user could tell apart
REPORT_SECONDS = 0.1  # reports of a busy engine come closer than this; what it does meanwhile they will tell
MOST_BEHIND = 8  # requests that are taken to wait behind one; the longest queues say little of the future
DEFAULT_BLOCK_SIZE = 16  # tokens; vLLM's, until a report says otherwise


def pick(candidates: Sequence[Endpoint], work: Work, context: Context) -> Endpoint:
    """The candidate with the lowest load, and with what computing cached tokens again costs all others."""
    waits = [wait_seconds(endpoint, work, context) for endpoint in candidates]
    if work.cached:
        again = _cost_of_computing(candidates, waits, work, context)
        waits = [wait + more for wait, more in zip(waits, again, strict=True)]
    keys = [
        (round(wait / TIE_SECONDS), endpoint.held(), endpoint.last_turn)
        for wait, endpoint in zip(waits, candidates, strict=True)
    ]
    return candidates[keys.index(min(keys))]


def _cost_of_computing(
    candidates: Sequence[Endpoint], waits: Sequence[float], work: Work, context: Context
) -> list[float]:
    """Seconds that the request's own prefill adds to the waits of others, on each candidate.

    Who waits behind it waits for it: about as many as the shortest queue has prompts, if queues stay as long.
    """
    own = [work.uncached(each.address) / prefill_rate(each, context) for each in candidates]
    queue = min(wait - mine for wait, mine in zip(waits, own, strict=True))
    fastest = max(prefill_rate(each, context) for each in candidates)
    behind = min(queue * fastest / context.typical.prompt, MOST_BEHIND)
    return [behind * mine for mine in own]


def wait_seconds(endpoint: Endpoint, work: Work, context: Context) -> float:
    """Eq. 2: how long `work` would wait on `endpoint`, its own prefill included; finite, 0 or more."""
    wait = prefill_seconds(endpoint, work, context)
    report = endpoint.report
    if report is None or not report.total_kv_blocks:
        return wait
    tokens = endpoint.booked_tokens + work.tokens
    missing = endpoint.missing_blocks + ceil(tokens / (report.block_size or DEFAULT_BLOCK_SIZE))
    if missing <= 0:
        return wait
    return max(wait, missing / released_blocks_per_second(report, context))


def prefill_seconds(endpoint: Endpoint, work: Work, context: Context) -> float:
    """Until the prefills that the engine holds, is computing or is about to get are done, and `work`'s."""
    rate = prefill_rate(endpoint, context)
    unreported = max(context.now - endpoint.reported_at - REPORT_SECONDS, 0.0)
    pending = endpoint.pending() / rate - unreported
    own = work.uncached(endpoint.address) / rate
    return max(pending, endpoint.busy_until - context.now, 0.0) + own


def prefill_rate(endpoint: Endpoint, context: Context) -> float:
    """Prompt tokens per second, over 0."""
    known = endpoint.report.prefill_tokens_per_second if endpoint.report is not None else 0.0
    return known or context.typical.prefill


def released_blocks_per_second(report: LoadReport, context: Context) -> float:
    """KV blocks that become free per second on a reporting engine, over 0.

    An engine that runs nothing now will run what waits, so at least one request is taken as running.
    """
    rates = Rates.of(report).or_else(context.typical)
    tokens = rates.prompt + (rates.output if context.sal.kv_release == "Gross" else 0.0)
    per_step = max(report.running, 1) * tokens / rates.output
    return per_step / rates.step / (report.block_size or DEFAULT_BLOCK_SIZE)

"""How long a request would wait on an engine, in seconds: SAL's load [paper 4.2, Eq. 2; our reading].

SAL chooses by it, and for every balancer the fleet tells by it whether a service is overloaded. It counts
what the picker sent since the last report. KV is in blocks. A running request frees its prompt and output,
i + o tokens, once in o steps, so a step releases running * (i + o) / o tokens (Gross), and running * i / o
when what the decodes consume meanwhile is taken off (Net).

Ours:
- A report counts the prompt tokens that no step has taken up. Those in the step under way, most of a short
  queue, it leaves out. So the picker notes for each engine when the prefills that it sent should be done
  (`Endpoint.busy_until`), and lets each report correct that.
- Engines of a service are taken to compute prompts equally fast, unless one is far from the others. What each
  measures hangs on the prompts that it got: one that got short ones looks faster, and would get long ones.
- Where reports stay away, the engine is taken to go on at its rate. Otherwise all requests herd to the engine
  whose report came last.
"""

from collections.abc import Sequence
from math import ceil, inf

from headrace_engine.contracts import LoadReport
from headrace_gateway.balancers.context import Context, Rates
from headrace_gateway.balancers.endpoint import Backlog, Endpoint, Work

FAR = 1.5  # times: other hardware, or something that is wrong; prompts alone move an engine's rate by less
REPORT_SECONDS = 0.1  # reports of a busy engine come closer than this; what it does meanwhile they will tell
DEFAULT_BLOCK_SIZE = 16  # tokens; vLLM's, until a report says otherwise


def wait_seconds(endpoint: Endpoint, work: Work, context: Context) -> float:
    """Estimate how long `work` would wait on `endpoint`, its own prefill included; finite, 0 or more."""
    return all_wait_seconds([endpoint], work, context)[0]


def all_wait_seconds(endpoints: Sequence[Endpoint], work: Work, context: Context) -> list[float]:
    """Estimate `wait_seconds` on each of `endpoints`: one look at hundreds of them, so nothing is called."""
    now, tokens, waits, any_short = context.now, work.tokens, [], False
    backlogs = [endpoint.backlog or sum_up(endpoint, context) for endpoint in endpoints]
    for seconds, done_at, busy_until, per_token, room in backlogs:
        ahead, busy = done_at - now, busy_until - now
        if ahead > seconds:  # noqa: PLR1730  (no call for every engine)
            ahead = seconds
        if busy > ahead:  # noqa: PLR1730
            ahead = busy
        waits.append((ahead if ahead > 0.0 else 0.0) + tokens * per_token)
        if tokens > room:
            any_short = True
    if work.cached:
        for place, (endpoint, backlog) in enumerate(zip(endpoints, backlogs, strict=True)):
            held = work.cached.get(endpoint.address)
            if held is not None:
                waits[place] -= held * backlog.per_token
    if any_short:  # of KV
        for place, (endpoint, backlog) in enumerate(zip(endpoints, backlogs, strict=True)):
            if tokens > backlog.room and endpoint.report is not None:
                waits[place] = max(waits[place], kv_seconds(endpoint, endpoint.report, work, context))
    return waits


def sum_up(endpoint: Endpoint, context: Context) -> Backlog:
    """Sum up what lies before a new request on `endpoint`, and keep it there."""
    report, per_token, room = endpoint.report, 1 / prefill_rate(endpoint, context), inf
    if report is not None and report.total_kv_blocks:
        room = -endpoint.missing_blocks * (report.block_size or DEFAULT_BLOCK_SIZE) - endpoint.booked_tokens
    seconds = (endpoint.queued_tokens + endpoint.booked_uncached) * per_token
    done_at = endpoint.reported_at + REPORT_SECONDS + seconds
    endpoint.backlog = backlog = Backlog(seconds, done_at, endpoint.busy_until, per_token, room)
    return backlog


def prefill_seconds(endpoint: Endpoint, work: Work, context: Context) -> float:
    """Estimate when `work`'s prefill is done: after all that the engine computes, has or is about to get."""
    backlog = endpoint.backlog or sum_up(endpoint, context)
    ahead = max(min(backlog.seconds, backlog.done_at - context.now), backlog.busy_until - context.now, 0.0)
    return ahead + work.uncached_tokens(endpoint.address) * backlog.per_token


def kv_seconds(endpoint: Endpoint, report: LoadReport, work: Work, context: Context) -> float:
    """Estimate when an engine that has not enough KV for `work`, as `report` says, will have it."""
    tokens = endpoint.booked_tokens + work.tokens
    missing = endpoint.missing_blocks + ceil(tokens / (report.block_size or DEFAULT_BLOCK_SIZE))
    return missing / released_blocks_per_second(report, context)


def prefill_rate(endpoint: Endpoint, context: Context) -> float:
    """Return the prompt tokens that the engine computes per second, over 0: as all do, or its own."""
    own = endpoint.report.prefill_tokens_per_second if endpoint.report is not None else 0.0
    shared = context.typical.prefill
    return own if own and not shared / FAR < own < shared * FAR else shared


def released_blocks_per_second(report: LoadReport, context: Context) -> float:
    """Estimate the KV blocks that become free per second on a reporting engine, over 0.

    An engine that runs nothing now will run what waits, so at least one request is taken as running.
    """
    rates = Rates.from_report(report).with_fallback(context.typical)
    tokens = rates.prompt + (rates.output if context.config.sal.kv_release == "Gross" else 0.0)
    per_step = max(report.running, 1) * tokens / rates.output
    return per_step / rates.step / (report.block_size or DEFAULT_BLOCK_SIZE)

"""SAL: the engine on which the request would wait least, in seconds [paper 4.2, Eq. 2; our reading].

    load(s, r) = max(queued prefill tokens of s with r / prefill tokens per second of s,
                     (KV needed on s with r - KV free on s) / KV released per second on s)

The first term is the time until all queued prompts are computed, the second the time until memory for them
is there; `waits` computes both.

Ours:
- Tokens in the engine's prefix cache need no prefill; KV they do need. To compute them again elsewhere may be
  the shortest wait for the request, but makes all behind it wait, so under a queue it counts several times.
- Waits closer than `TIE_SECONDS` are equal, and the engine that holds fewer requests wins, then the one not
  chosen for longest. With no queue anywhere all waits are about equal, and decodes should spread too.
"""

from collections.abc import Sequence

from headrace_gateway.balancers.context import Context
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.balancers.protocol import Needs
from headrace_gateway.balancers.waits import all_wait_seconds, sum_up

TIE_SECONDS = 0.01  # less than one step of most models: no wait that a user could tell apart
MOST_BEHIND = 8  # requests that are taken to wait behind one; the longest queues say little of the future

needs = Needs(prefixes=True)


def pick(candidates: Sequence[Endpoint], work: Work, context: Context) -> Endpoint:
    """Return the candidate with the lowest load; to compute cached tokens again counts for all who wait."""
    waits = all_wait_seconds(candidates, work, context)
    if work.cached:
        again = _cost_of_computing(candidates, waits, work, context)
        waits = [wait + more for wait, more in zip(waits, again, strict=True)]
    least = min(waits)
    as_short = max(least, (round(least / TIE_SECONDS) + 0.5) * TIE_SECONDS)
    equal = [place for place, wait in enumerate(waits) if wait <= as_short]
    if len(equal) == 1:
        return candidates[equal[0]]
    return min(
        [candidates[place] for place in equal],
        key=lambda endpoint: (endpoint.held_requests(), endpoint.last_turn),
    )


def _cost_of_computing(
    candidates: Sequence[Endpoint], waits: Sequence[float], work: Work, context: Context
) -> list[float]:
    """Return the seconds that the request's own prefill adds to the waits of others, on each candidate.

    Who waits behind it waits for it: about as many as the shortest queue has prompts, if queues stay as long.
    """
    per_token = [(each.backlog or sum_up(each, context)).per_token for each in candidates]
    cached, tokens = work.cached, work.tokens
    own = [
        (tokens - cached.get(each.address, 0.0)) * seconds
        for each, seconds in zip(candidates, per_token, strict=True)
    ]
    queue = min(wait - mine for wait, mine in zip(waits, own, strict=True))
    behind = min(queue / min(per_token) / context.typical.prompt, MOST_BEHIND)
    return [behind * mine for mine in own]

"""The balancers that others run, for the fleet study, each ported from its source, which its module names.

Their rules and defaults are the originals', the code is ours. All see what the product's balancers see: the
same load reports at the same interval, prompt lengths estimated from texts in the same way. Beyond that they
see their own requests' first and last tokens, and two of them KV events, without delay.
"""

from e2e.bench.rivals.aibrix import PrefixCache
from e2e.bench.rivals.dynamo import KvRouter
from e2e.bench.rivals.gateway import Rival
from e2e.bench.rivals.llm_d import LMetric, OptimizedBaseline, WeightedScorers
from e2e.bench.rivals.two_choices import PowerOfTwoTokens
from e2e.bench.rivals.vllm_router import CacheAware

RIVALS: dict[str, type[Rival]] = {
    "llm_d": OptimizedBaseline,
    "llm_d_scorers": WeightedScorers,
    "lmetric": LMetric,
    "dynamo": KvRouter,
    "vllm_router": CacheAware,
    "aibrix": PrefixCache,
    "two_choices": PowerOfTwoTokens,
}

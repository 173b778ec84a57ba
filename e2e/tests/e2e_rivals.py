"""Engines that stand still before a rival balancer, and prompts whose blocks are named."""

from types import SimpleNamespace

from headrace_engine.contracts import GatewayConfig, LoadReport
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

PIECE = 64  # tokens that a prompt's id stands for
CONFIG = GatewayConfig("llm", "chat", ("chat",), "chat")


class StillEngine:
    """Computes 1,000 prompt tokens a second, if it ever did; its cache holds what the test says."""

    def __init__(self, blocks=1000):
        self.settings = EngineSettings(num_blocks=blocks, block_size=16, max_num_batched_tokens=2048)
        self.cost = SimpleNamespace(step_seconds=lambda batch: batch.prefill_tokens / 1000)
        self.link = SimpleNamespace(board=None, steps=[], requests=[])
        self.cached = {}

    def cached_blocks(self, arrival):
        return self.cached.get(arrival.prefix, 0)


class Desk:
    """A rival before still engines: `send` tells where requests go."""

    def __init__(self, kind, engines=2, seed=0, **options):
        self.engines = [StillEngine(**options) for _ in range(engines)]
        self.rival = kind(CONFIG, self.engines, seed)
        self.sent = []

    def send(self, *ids, pieces=0, now=0.0):
        """Send a prompt of these pieces, and `pieces` that are like no other's; returns its engine."""
        arrival = Arrival(now, PIECE * (len(ids) + pieces), 10, tuple(ids or [-1 - len(self.sent)]), PIECE)
        engine = self.rival.choose(arrival, now)
        self.sent.append(Outcome(arrival, engine))
        return engine

    def begin(self, number):
        """Pass the first token of request `number`."""
        self.rival.record_first_token(self.sent[number].engine, self.sent[number], 1.0)

    def end(self, number):
        """Pass the last token of request `number`."""
        self.rival.record_finished(self.sent[number].engine, self.sent[number], 2.0)

    def report(self, engine, *, waiting=0, free=1000, total=1000):
        """Let an engine report."""
        counts = {"waiting": waiting, "free_kv_blocks": free, "total_kv_blocks": total}
        rest = dict.fromkeys(LoadReport.__dataclass_fields__, 0) | {"boot": "1", "serving": True}
        self.rival.receive(engine, LoadReport(**(rest | counts | {"block_size": 16, "schema": 1})), 0.0)

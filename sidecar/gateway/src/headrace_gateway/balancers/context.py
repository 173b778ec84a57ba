"""What a balancer may use besides the candidates: settings, chance, and what is typical of the service."""

from dataclasses import dataclass
from random import Random

from headrace_engine.contracts import GatewayConfig, LoadReport


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast an engine works; 0 means unknown.

    `prefill`: prompt tokens per second. `step`: seconds per step. `prompt`, `output`: mean tokens per
    request.
    """

    prefill: float = 0.0
    step: float = 0.0
    prompt: float = 0.0
    output: float = 0.0

    @classmethod
    def from_report(cls, report: LoadReport) -> "Rates":
        """Take the rates that a load report carries."""
        return cls(
            report.prefill_tokens_per_second,
            report.step_seconds,
            report.mean_prompt_tokens,
            report.mean_output_tokens,
        )

    def with_fallback(self, other: "Rates") -> "Rates":
        """Return these rates, with those of `other` for the unknown ones."""
        return Rates(
            self.prefill or other.prefill,
            self.step or other.step,
            self.prompt or other.prompt,
            self.output or other.output,
        )


# Until any engine of a service has measured itself: the order of one mid-size model on one GPU. The engines
# are then alike, so the choice hangs on their queues alone; only `maxQueue` sees the absolute value.
FIRST_GUESS = Rates(prefill=10_000.0, step=0.02, prompt=500.0, output=200.0)


@dataclass(slots=True)
class Context:
    """One service's balancing state, owned by its fleet."""

    random: Random
    config: GatewayConfig
    typical: Rates = FIRST_GUESS  # for an engine that does not know its own yet
    now: float = 0.0  # the picker's clock at this choice, seconds

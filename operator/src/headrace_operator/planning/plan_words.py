"""A plan as `status.plan` has it, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor

from headrace_operator.api.placement import PlannedGroup, PlannedMember, PlannedServiceStatus, PlanStatus
from headrace_operator.placement.problem import Group
from headrace_operator.placement.recommend import Recommendation
from headrace_operator.placement.traffic import Span
from headrace_operator.planning.asked_service import AskedService
from headrace_operator.simulate.targets import format_targets

_MOST_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """What was found for `services`, on GPUs of the kind `gpu`, by what they were asked in `span`."""

    services: Sequence[AskedService]
    found: Recommendation
    gpu: str
    gpus_today: int
    span: Span

    def as_status(self, time: str) -> PlanStatus:
        """Describe it; `time`: when it was found, RFC 3339."""
        found = self.found
        return PlanStatus(
            time=time,
            message=self._message()[:_MOST_CHARACTERS],
            gpus=found.gpus,
            gpus_today=self.gpus_today,
            groups=tuple(map(self._group, found.plan, found.kv_tokens)),
            services=tuple(map(self._service, range(len(self.services)))),
        )

    def _message(self) -> str:
        gpus = self._gpus(self.found.gpus)
        if self.found.worse:
            names = ", ".join(self.services[number].name for number in self.found.worse)
            head = f"no plan does as well as today for {names}; the best one takes {gpus}"
        elif self.found.gpus < self.gpus_today:
            head = f"{gpus} are enough for what {self.gpus_today} do today"
        else:
            head = f"{gpus}; today there are {self.gpus_today}, and no fewer are enough"
        sharing = [self._words(group) for group in self.found.plan if len(group.members) > 1]
        sentences = [
            f"{head}: {'; '.join(sharing) or 'no service shares GPUs'}",
            f"An estimate, by what was asked in the busiest {self.span.seconds:.0f} s of the last hour",
            *self._notes(),
        ]
        return ". ".join(sentences)

    def _notes(self) -> Iterator[str]:
        """Say what a reader should know before doing as the plan says."""
        if silent := [service.name for service in self.services if service.silent]:
            yield (
                f"Taken as asked nothing, since no engine has told: {', '.join(silent)}. Engines tell once "
                "they are ready, and their pods are of this release"
            )
        if idle := [each.name for each in self.services if not each.silent and not each.sum_up(self.span)]:
            yield f"Asked nothing: {', '.join(idle)}"
        for service in self.services:
            if service.simulated.slo_assumed:
                targets = format_targets(service.simulated.slo)
                yield f"{service.name}: targets are assumed, since spec.slo sets none: {targets}"
            for note in service.simulated.engine.notes:
                yield f"{service.name}: {note}"

    def _gpus(self, count: int) -> str:
        return f"{count} x {self.gpu.upper()}"

    def _words(self, group: Group) -> str:
        names = [self.services[member].name for member in group.members]
        if len(names) == 1:
            return f"{names[0]} alone on {self._gpus(group.gpus)}"
        return f"{', '.join(names[:-1])} and {names[-1]} by turns on {self._gpus(group.gpus)}"

    def _group(self, group: Group, kv_tokens: Sequence[int]) -> PlannedGroup:
        members = []
        for number, tokens in zip(group.members, kv_tokens, strict=True):
            service = self.services[number].simulated
            members.append(
                PlannedMember(
                    service=service.name,
                    gpu_memory_utilization_percent=service.memory_percent(tokens, group.gpus),
                    kv_cache_memory_bytes=service.kv_bytes(tokens, group.gpus),
                )
            )
        return PlannedGroup(gpus=group.gpus, members=tuple(members), message=self._words(group))

    def _service(self, number: int) -> PlannedServiceStatus:
        service, found = self.services[number], self.found
        asked = service.sum_up(self.span)
        if asked is None:
            return PlannedServiceStatus(name=service.name)
        return PlannedServiceStatus(
            name=service.name,
            requests=asked.requests,
            prompt_tokens=round(asked.prompt.mean),
            output_tokens=round(asked.output.mean),
            measured_percent=None if service.simulated.slo_assumed else _percent(asked.attainment),
            today_percent=_percent(found.today[number].attainment) if found.today else None,
            planned_percent=_percent(found.standings[number].attainment),
        )


def _percent(share: float) -> int:
    """Return whole percent, rounded down: 100 means all."""
    return floor(100 * share)

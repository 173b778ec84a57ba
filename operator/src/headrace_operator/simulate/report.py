"""The result: tables for people, one JSON object for programs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from headrace_engine.contracts import Slo
from headrace_engine.cost.model import Profile
from headrace_operator.api import LLMService
from headrace_operator.api.bodies import JsonObject
from headrace_operator.simulate import candidates, known_error, targets
from headrace_operator.simulate.figures import ENOUGH
from headrace_operator.simulate.intervals import DRAWS
from headrace_operator.simulate.known_error import KnownError
from headrace_operator.simulate.simulated_engine import Engine
from headrace_operator.simulate.study import Study
from headrace_operator.simulate.trace import Stretch, doubt_clock


@dataclass(frozen=True, slots=True)
class Report:
    """What was asked and what came out."""

    service: LLMService
    profile: Profile
    engine: Engine
    trace: str  # its file
    stretch: Stretch
    slo: Slo
    slo_assumed: bool
    replicas: int  # that the policies were compared on
    most: int  # replicas tried at most
    known_error: KnownError
    study: Study

    @property
    def change(self) -> JsonObject | None:
        """The recommended patch; None if there is nothing to change."""
        study = self.study
        if study.recommended == study.current:
            return None
        return candidates.make_patch(self.service, study.candidates[study.recommended])


def _targets(slo: Slo) -> dict[str, int | None]:
    """Return the targets without what clients may ask for: a trace asks for nothing."""
    found = dataclasses.asdict(slo)
    del found["per_request"]
    return found


def as_json(report: Report) -> JsonObject:
    """Return everything as JSON, in seconds and shares."""
    study, stretch = report.study, report.stretch
    return {
        "simulated": True,
        "service": str(report.service.key),
        "replicas": report.replicas,
        "balancer": report.service.spec.routing.balancer,
        "trace": {
            "file": report.trace,
            "requests": len(stretch.arrivals),
            "start": round(stretch.start, 3),
            "seconds": round(stretch.seconds, 3),
            "of_requests": stretch.trace_requests,
            "of_seconds": round(stretch.trace_seconds, 3),
            "skipped": list(stretch.skipped),
        },
        "engine": dataclasses.asdict(report.engine.settings),
        "kv_blocks_from": report.engine.kv_source,
        "notes": notes(report),
        "cost_model": dataclasses.asdict(report.profile),
        "targets": {**_targets(report.slo), "assumed": report.slo_assumed},
        "policies": [
            {
                "name": each.name,
                "current": number == study.current,
                "recommended": number == study.recommended,
                "scheduling": candidates.make_patch(report.service, each)["spec"]["scheduling"],
                **round_figures(dataclasses.asdict(figures)),
                "intervals": _intervals(study, number),
            }
            for number, (each, figures) in enumerate(zip(study.candidates, study.figures, strict=True))
        ],
        "recommended": {
            "name": study.candidates[study.recommended].name,
            "patch": report.change,
            "change": round_figures(
                {key: dataclasses.asdict(each) for key, each in study.rival.change.items()}
            )
            if study.rival
            else None,
            "replicas": study.replicas,
            "replicas_at_low_end": study.sure_replicas,
            "replicas_tried_up_to": report.most,
            "doubtful": _doubtful(study),
        },
        "known_error": known_error.known_error_json(report.known_error),
    }


def notes(report: Report) -> list[str]:
    """Say what is not as in the service, or not known."""
    arrivals, settings = report.stretch.arrivals, report.engine.settings
    found = [*doubt_clock(arrivals, report.stretch.seconds), *report.engine.notes]
    if settings.prefix_caching and not any(arrival.prefix for arrival in arrivals):
        found.append("the trace does not say which prompts begin alike: the prefix cache never helps here")
    if report.slo_assumed:
        found.append(
            "spec.slo sets no targets for the engines to schedule by: EconoServe, AccelGen and step budgets "
            "of mode SLO run without any here, as they would there"
        )
    if report.service.spec.prediction.predictor == "Learned":
        found.append(
            "spec.prediction.predictor: Learned needs the prompts, which a trace does not hold; Quantile "
            "predicts instead"
        )
    fitted = report.profile.max_context
    beyond = sum(arrival.tokens > fitted for arrival in arrivals) / len(arrivals) if fitted else 0.0
    if beyond:
        found.append(
            f"{beyond:.1%} of the requests exceed the {fitted} tokens that the cost model was made for"
        )
    if report.stretch.skipped:
        found.append(f"{len(report.stretch.skipped)} rows skipped, first: {report.stretch.skipped[0]}")
    return found


def recommendation(report: Report) -> list[str]:
    """Say what to do, in sentences and commands to paste."""
    study, service = report.study, report.service
    chosen, figures = study.candidates[study.recommended], study.figures[study.recommended]
    lines = []
    if report.change is None:
        lines.append(
            f"Recommended: keep {chosen.in_words}. No other setting is clearly better on this trace."
        )
    else:
        lines += [f"Recommended: {chosen.in_words}.", "  " + candidates.patch_command(service, report.change)]
    if study.rival and study.rival.refuted_by:
        why = {
            "steps": "not if steps take longer than the cost model says",
            "interval": "the interval of the change has no gain at its other end",
        }[study.rival.refuted_by]
        lines.append(f"{study.candidates[study.rival.number].in_words} looks better above, but {why}.")
    return [*lines, *_replicas(report, figures.met["all"])]


def _replicas(report: Report, met: float) -> list[str]:
    """Say how many replicas are enough, in the trace's own simulation and at the interval's low end."""
    fewest, sure, now = report.study.replicas, report.study.sure_replicas, report.replicas
    goal = f"for {ENOUGH:.0%} of the requests to meet their targets"
    if fewest is None:
        line = f"Replicas: more than {report.most} are needed {goal}; {now} give {met:.0%}."
        return [f"{line} --replicas-up-to tries more."]
    as_now = ", as now" if fewest == now else ""
    if fewest == sure:
        line = f"Replicas: {fewest}{as_now}: the fewest {goal}, also at the low end of the interval."
    else:
        most = f"{sure}{', as now,' if sure == now else ''}" if sure else f"more than {report.most}"
        line = f"Replicas: {fewest}{as_now}: the fewest {goal}; {most} at the low end of the interval."
    if (wanted := sure or fewest) == now:
        return [line]
    key = report.service.key
    return [line, f"  kubectl scale llmservice {key.name} -n {key.namespace} --replicas={wanted}"]


def about(report: Report) -> list[str]:
    """Say what was simulated, and how far to believe it."""
    stretch, settings, profile = report.stretch, report.engine.settings, report.profile
    count = len(stretch.arrivals)
    prompt = sum(arrival.prompt_tokens for arrival in stretch.arrivals) / count
    output = sum(arrival.output_tokens for arrival in stretch.arrivals) / count
    which = (
        "all of it"
        if count == stretch.trace_requests
        else f"the busiest {format_clock(stretch.seconds)} of {format_clock(stretch.trace_seconds)}, from "
        f"{format_clock(stretch.start)} on"
    )
    return [
        (
            f"Trace: {report.trace}, {which}: {count} requests, {stretch.rate:.2f} per second, on average "
            f"{prompt:.0f} prompt and {output:.0f} output tokens."
        ),
        (
            f"Engine: {settings.max_num_batched_tokens} tokens, {settings.max_num_seqs} requests per step, "
            f"{settings.num_blocks} KV blocks of {settings.block_size} ({report.engine.kv_source})."
        ),
        (
            f"Step times: {profile.model} on {profile.tensor_parallel} x {profile.gpu}, {profile.engine}, "
            f"{profile.source}."
        ),
        f"Targets: {targets.format_targets(report.slo)}"
        + (" (assumed: spec.slo sets none)." if report.slo_assumed else " (spec.slo)."),
        *(f"Note: {note}." for note in notes(report)),
        (
            f"Intervals: {DRAWS} draws of traffic like the trace's, each with step times up to "
            f"{100 * (report.known_error.off_by['tpot'] - 1):.1f} % off; times at least their known error."
        ),
        f"Known error of the simulator: {known_error.describe_known_error(report.known_error)}.",
    ]


def format_clock(seconds: float) -> str:
    """Write seconds as `0:10:00`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _intervals(study: Study, number: int) -> JsonObject | None:
    """Return the intervals of today's setting and of the best other one; the rest has none."""
    found = study.now if number == study.current else None
    if study.rival and number == study.rival.number:
        found = study.rival.intervals
    if found is None:
        return None
    return round_figures({name: dataclasses.asdict(each) for name, each in found.items()})


def _doubtful(study: Study) -> JsonObject | None:
    """Return which setting looked better and is not recommended, and by what it was refuted."""
    if study.rival is None or study.rival.recommended:
        return None
    return {"name": study.candidates[study.rival.number].name, "refuted_by": study.rival.refuted_by}


def round_figures(figures: JsonObject) -> JsonObject:
    """Round all numbers to four digits."""

    def shorter(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shorter(inner) for key, inner in value.items()}
        return round(value, 4) if isinstance(value, float) else value

    found: JsonObject = shorter(figures)
    return found

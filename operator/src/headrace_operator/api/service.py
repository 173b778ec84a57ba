"""LLMService: one model, served by any number of vLLM replicas behind one name.

`parse_service` is the door: beyond it the operator works with these frozen types, never with raw JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, ValidationError, model_validator

from headrace_engine.contracts import ContractError, PerRequest, PolicyDocument
from headrace_engine.contracts import Prediction as PredictionDocument
from headrace_engine.contracts import Slice as SliceDocument
from headrace_engine.contracts import Slo as SloDocument
from headrace_engine.contracts import StepBudget as StepBudgetDocument
from headrace_engine.policies import registry
from headrace_operator.api.base import Block, Integer, live, milliseconds, rolls, rule, ruled
from headrace_operator.api.bodies import Body
from headrace_operator.api.engine import EXTENDED_RESOURCE, Accelerator, Engine, Model
from headrace_operator.api.pod_template import PodTemplate
from headrace_operator.api.quantity import parse_quantity
from headrace_operator.api.serving import Disruption, Prediction, Routing, Scheduling, Slice, Slo, block_name
from headrace_operator.errors import SpecInvalidError

GROUP = "headrace.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LLMService"
PLURAL = "llmservices"
POOL_KIND = "GPUPool"
POOL_PLURAL = "gpupools"
PAUSED = f"{GROUP}/paused"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which LLMService, or which GPUPool."""

    namespace: str
    name: str
    kind: str = KIND

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}"
        return name if self.kind == KIND else f"{self.kind} {name}"


_DEVICES = (
    "podTemplate.resources: leave out the accelerator's resource, which the operator adds, or ask for as "
    "many as engine.tensorParallelSize"
)


def _device_rule(field: str) -> dict[str, str]:
    """Write in CEL that what the user asks of the accelerator's resource is what the operator adds."""
    asked = f"self.podTemplate.resources.{field}"
    count = f"quantity(string({asked}[{EXTENDED_RESOURCE}])).asInteger()"
    return rule(
        "self.accelerator.type != 'GPU' || has(self.accelerator.dra) || "
        f"!has(self.podTemplate) || !has(self.podTemplate.resources) || !has({asked}) || "
        f"!({EXTENDED_RESOURCE} in {asked}) || "
        f"{count} == self.engine.tensorParallelSize",
        _DEVICES,
        f".podTemplate.resources.{field}",
    )


_SLICE_BLOCK = (
    "scheduling.slice.tokens must not be below engine.blockSize: raise it, or remove scheduling.slice"
)
_SLICE_LENGTH = "scheduling.slice.tokens must not exceed engine.maxModelLen: no request is longer; lower it"


def _slice_rule(sign: str, field: str, message: str) -> dict[str, str]:
    """Write in CEL how the length of a slice compares to a field of the engine, where both are set."""
    return rule(
        f"!has(self.scheduling.slice) || !has(self.engine.{field}) || "
        f"self.scheduling.slice.tokens {sign} self.engine.{field}",
        message,
        ".scheduling.slice.tokens",
    )


class Spec(Block):
    """What the service shall be."""

    model: Model = Field(description="The weights, and the name that clients use for them.")
    engine: Engine = Field(description="The vLLM process.")
    accelerator: Accelerator = rolls("The device that one replica needs.", Accelerator())
    replicas: Integer = live(
        "Number of engine pods. Leave it out of a manifest whose service an autoscaler scales. With 0 the "
        "gateway answers 503. Scaling restarts no other pod.",
        1,
        ge=0,
        le=1000,
    )
    scheduling: Scheduling = live("The scheduling policy inside each engine.", Scheduling())
    slo: Slo = live("Targets of each request; any subset.", Slo())
    prediction: Prediction = live("How engines predict output lengths.", Prediction())
    routing: Routing = live("How the gateway spreads requests over replicas.", Routing())
    disruption: Disruption = Field(Disruption(), description="How pods are replaced and drained.")
    pod_template: PodTemplate = rolls("A restricted patch over the pods.", PodTemplate())

    model_config = ruled(
        *map(_device_rule, ("requests", "limits")),
        _slice_rule(">=", "blockSize", _SLICE_BLOCK),
        _slice_rule("<=", "maxModelLen", _SLICE_LENGTH),
    )

    @model_validator(mode="after")
    def _as_many_devices(self) -> Spec:
        asked, name = self.pod_template.resources, self.accelerator.extended_resource
        if name:
            for amounts in (asked.requests, asked.limits):
                if (
                    parse_quantity(amounts.get(name, self.engine.tensor_parallel_size))
                    != self.engine.tensor_parallel_size
                ):
                    raise ValueError(_DEVICES)
        return self

    @model_validator(mode="after")
    def _slice_that_fits(self) -> Spec:
        asked, engine = self.scheduling.slice, self.engine
        if asked is not None:
            if engine.block_size is not None and asked.tokens < engine.block_size:
                raise ValueError(_SLICE_BLOCK)
            if engine.max_model_len is not None and asked.tokens > engine.max_model_len:
                raise ValueError(_SLICE_LENGTH)
        return self


@dataclass(frozen=True, slots=True)
class LLMService:
    """A parsed LLMService with what the operator needs of its metadata."""

    key: Key
    uid: str
    generation: int
    created: str  # RFC 3339, UTC: sorts as text
    paused: bool
    spec: Spec
    group_claim: str | None = None  # ResourceClaim of its group, whose devices it shares
    placed_replicas: int | None = None  # that a pool gives it, in place of those of its spec
    surges: bool = False  # a pool moves it, and its next engines start beside those that it has

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        return self.spec.model.served_name or self.key.name

    @property
    def replicas(self) -> int:
        """How many engine pods there shall be; none if its spec says so, whoever places them."""
        asked = self.spec.replicas
        return asked if self.placed_replicas is None or asked == 0 else self.placed_replicas

    @property
    def on_gpu(self) -> bool:
        """Whether a replica needs accelerators."""
        return self.spec.accelerator.type == "GPU"

    @property
    def uses_dra(self) -> bool:
        """Whether accelerators are asked for by ResourceClaims."""
        return self.spec.accelerator.dra is not None


def key_of(body: Body) -> Key:
    """Return the key of a raw LLMService or GPUPool; of other objects, of the LLMService of their name."""
    metadata = body["metadata"]
    kind = POOL_KIND if body.get("kind") == POOL_KIND else KIND
    return Key(metadata["namespace"], metadata["name"], kind)


def served_name_of(body: Body) -> str:
    """Read `LLMService.served_name` of a raw body that may not be valid."""
    model = (body.get("spec") or {}).get("model") or {}
    return str(model.get("servedName") or body["metadata"]["name"])


def replicas_of(body: Body) -> int:
    """Read `LLMService.replicas` of a raw body that may not be valid."""
    replicas = (body.get("spec") or {}).get("replicas")
    return replicas if isinstance(replicas, int) else 1


def is_paused(metadata: Body) -> bool:
    """Tell whether the object's annotation asks the operator to leave it alone."""
    return (metadata.get("annotations") or {}).get(PAUSED) == "true"


def parse_service(body: Body) -> LLMService:
    """Read an LLMService from the API server's JSON; SpecInvalidError names the field and the fix."""
    metadata = body["metadata"]
    try:
        spec = Spec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise SpecInvalidError(explain(error)) from error
    service = LLMService(
        key=key_of(body),
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        created=metadata.get("creationTimestamp") or "",
        paused=is_paused(metadata),
        spec=spec,
    )
    try:
        registry.validate_document(policy_document(service))
        for policy, settings in spec.scheduling.settings.items():  # also of those that are not selected
            registry.parse_parameters(policy, settings, block_name(policy))
    except ContractError as error:
        raise SpecInvalidError(f"spec.scheduling: {error}") from error
    return service


def policy_document(service: LLMService) -> PolicyDocument:
    """Make the document that the engines of the service shall schedule by, sealed with its hash."""
    spec = service.spec
    budget, prediction = spec.scheduling.step_budget, spec.prediction
    mode = registry.default_budget(spec.scheduling.policy) if budget.mode == "Policy" else budget.mode
    return PolicyDocument(
        policy=spec.scheduling.policy,
        parameters=dict(spec.scheduling.parameters),
        step_budget=StepBudgetDocument(mode, budget.tokens if mode == "Fixed" else None),
        slo=slo_document(spec.slo),
        prediction=PredictionDocument(prediction.predictor, prediction.quantile_percent),
        slice=_slice_document(spec.scheduling.slice, hand_back=spec.routing.rebalance == "Auto"),
    ).sealed()


def slo_document(slo: Slo) -> SloDocument:
    """Make the targets of the contract, in milliseconds."""
    own = slo.per_request
    return SloDocument(
        ttft_ms=_milliseconds(slo.ttft),
        tpot_ms=_milliseconds(slo.tpot),
        e2e_ms=_milliseconds(slo.e2e),
        e2e_scale_percent=slo.e2e_scale_percent,
        per_request=PerRequest(
            _milliseconds(own.min_ttft), _milliseconds(own.min_tpot), _milliseconds(own.min_e2e)
        )
        if own.enabled
        else None,
    )


def _slice_document(asked: Slice | None, *, hand_back: bool) -> SliceDocument | None:
    if asked is None:
        return None
    return SliceDocument(asked.tokens, milliseconds(asked.patience), hand_back=hand_back)


def _milliseconds(target: str | None) -> int | None:
    return milliseconds(target) if target else None


def explain(error: ValidationError) -> str:
    """Name the field of a spec that is wrong first, and say what is wrong with it."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in ("spec", *problem["loc"]))
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"

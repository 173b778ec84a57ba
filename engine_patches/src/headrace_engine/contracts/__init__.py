"""What Headrace's parts say to each other: each document has one definition, a version and a golden file.

| document        | from → to            | carried by                                          |
|-----------------|----------------------|-----------------------------------------------------|
| PolicyDocument  | operator → engine    | ConfigMap `<service>-policy`, then the shared folder |
| ResumeKey       | operator → engine    | the same                                             |
| TurnGroup       | operator → engine    | ConfigMap, then by the sidecar the shared folder     |
| GatewayConfig   | operator → picker    | `spec` of LLMRoute `<service>`                       |
| LoadReport      | sidecar → picker     | `GET /load`, `GET /load/stream`                      |
| EngineStatus    | sidecar → operator   | `GET /status`                                        |
| Traffic         | sidecar → operator   | `GET /traffic`                                       |

Everything is JSON with camelCase keys. A reader ignores keys it does not know and refuses a `schema` newer
than its own, so that a writer may add but never repurpose a key. An LLMRoute has its API version instead.
"""

from headrace_engine.contracts.codec import ContractError, decode, dumps, encode, loads, text_hash
from headrace_engine.contracts.engine_status import AppliedPolicy, EngineInfo, EngineStatus, PredictionState
from headrace_engine.contracts.gateway_config import GatewayConfig, SalParameters
from headrace_engine.contracts.load_report import LoadReport
from headrace_engine.contracts.policy_document import (
    PerRequest,
    PolicyDocument,
    Prediction,
    Slice,
    Slo,
    StepBudget,
)

__all__ = [
    "AppliedPolicy",
    "ContractError",
    "EngineInfo",
    "EngineStatus",
    "GatewayConfig",
    "LoadReport",
    "PerRequest",
    "PolicyDocument",
    "Prediction",
    "PredictionState",
    "SalParameters",
    "Slice",
    "Slo",
    "StepBudget",
    "decode",
    "dumps",
    "encode",
    "loads",
    "text_hash",
]

"""The API v1alpha1 as types, LLMService and GPUPool: specs, statuses, conditions, and the rules of specs."""

from headrace_operator.api.conditions import Condition, PodReason, Reason, Severity
from headrace_operator.api.gpu_pool import GPUPool, PoolSpec, PoolStatus, parse_pool, parse_pools
from headrace_operator.api.route import ROUTE_KIND, ROUTE_PLURAL, RouteSpec, RouteStatus
from headrace_operator.api.service import (
    API_VERSION,
    GROUP,
    KIND,
    PLURAL,
    POOL_KIND,
    POOL_PLURAL,
    VERSION,
    Key,
    LLMService,
    Spec,
    is_paused,
    key_of,
    parse_service,
    policy_document,
    replicas_of,
    served_name_of,
    slo_document,
)
from headrace_operator.api.status import PolicyStatus, ServiceStatus, StatusCondition
from headrace_operator.api.volumes import RESERVED_VOLUMES

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "PLURAL",
    "POOL_KIND",
    "POOL_PLURAL",
    "RESERVED_VOLUMES",
    "ROUTE_KIND",
    "ROUTE_PLURAL",
    "VERSION",
    "Condition",
    "GPUPool",
    "Key",
    "LLMService",
    "PodReason",
    "PolicyStatus",
    "PoolSpec",
    "PoolStatus",
    "Reason",
    "RouteSpec",
    "RouteStatus",
    "ServiceStatus",
    "Severity",
    "Spec",
    "StatusCondition",
    "is_paused",
    "key_of",
    "parse_pool",
    "parse_pools",
    "parse_service",
    "policy_document",
    "replicas_of",
    "served_name_of",
    "slo_document",
]

"""The LLMService API v1alpha1 as types: spec, status, conditions, and the rules that a spec must follow."""

from headrace_operator.api.conditions import Condition, PodReason, Reason, Severity
from headrace_operator.api.route import ROUTE_KIND, ROUTE_PLURAL, RouteSpec, RouteStatus
from headrace_operator.api.service import (
    API_VERSION,
    GROUP,
    KIND,
    PLURAL,
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
    "RESERVED_VOLUMES",
    "ROUTE_KIND",
    "ROUTE_PLURAL",
    "VERSION",
    "Condition",
    "Key",
    "LLMService",
    "PodReason",
    "PolicyStatus",
    "Reason",
    "RouteSpec",
    "RouteStatus",
    "ServiceStatus",
    "Severity",
    "Spec",
    "StatusCondition",
    "is_paused",
    "key_of",
    "parse_service",
    "policy_document",
    "replicas_of",
    "served_name_of",
    "slo_document",
]

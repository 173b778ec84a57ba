"""Envoy's matching tree over the routes: which few of them a request may take, without trying all.

Envoy lets a tree over routes look at headers only, `:path` (with its query) and `:method` among them. So what
depends on the body is left to the routes at its leaves, which Envoy tries in order as it does without a tree.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import http_inputs_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2
from xds.type.matcher.v3 import matcher_pb2

Matcher: TypeAlias = matcher_pb2.Matcher
Branch: TypeAlias = matcher_pb2.Matcher.OnMatch
Predicate: TypeAlias = matcher_pb2.Matcher.MatcherList.Predicate


def leaf(routes: Iterable[route_components_pb2.Route]) -> Branch:
    """Make a branch that tries these routes in order; a request that none of them takes has no route."""
    return Branch(action=_extension("routes", route_components_pb2.RouteList(routes=routes)))


def first_match(branches: Sequence[tuple[Predicate, Branch]], otherwise: Branch) -> Matcher:
    """Take the first branch whose predicate holds."""
    fields = [{"predicate": predicate, "on_match": branch} for predicate, branch in branches]
    return Matcher(matcher_list={"matchers": fields}, on_no_match=otherwise)


def by_value(header: str, branches: Mapping[str, Branch], otherwise: Branch) -> Branch:
    """Look a header's value up."""
    return _look_up(header, branches, otherwise, "exact_match_map")


def by_prefix(header: str, branches: Mapping[str, Branch], otherwise: Branch) -> Branch:
    """Look up with which of these prefixes a header begins; the longest wins."""
    return _look_up(header, branches, otherwise, "prefix_match_map")


def _look_up(header: str, branches: Mapping[str, Branch], otherwise: Branch, how: str) -> Branch:
    if not branches:  # which Envoy takes for a mistake
        return otherwise
    tree: dict[str, Any] = {"input": _read(header), how: {"map": branches}}
    return Branch(matcher=Matcher(matcher_tree=tree, on_no_match=otherwise))


def equals(header: str, value: str, *, ignore_case: bool = False) -> Predicate:
    """Tell whether a header is there and has this value."""
    return _header(header, {"exact": value, "ignore_case": ignore_case})


def fits(header: str, regex: str) -> Predicate:
    """Tell whether a header is there and the whole of it fits a regular expression."""
    return _header(header, {"safe_regex": {"google_re2": {}, "regex": regex}})


def is_present(header: str) -> Predicate:
    """Tell whether a header is there, be it empty."""
    return fits(header, "(?s).*")


def no(predicate: Predicate) -> Predicate:
    """Tell whether a predicate does not hold."""
    return Predicate(not_matcher=predicate)


def both(one: Predicate, other: Predicate) -> Predicate:
    """Tell whether both hold."""
    return Predicate(and_matcher={"predicate": [one, other]})


def either(predicates: Iterable[Predicate]) -> Predicate:
    """Tell whether one of them holds."""
    return Predicate(or_matcher={"predicate": predicates})


def _header(header: str, value: dict[str, Any]) -> Predicate:
    return Predicate(single_predicate={"input": _read(header), "value_match": value})


def _read(header: str) -> extension_pb2.TypedExtensionConfig:
    return _extension("header", http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=header))


def _extension(name: str, message: Message) -> extension_pb2.TypedExtensionConfig:
    packed = any_pb2.Any()
    packed.Pack(message, deterministic=True)
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed)

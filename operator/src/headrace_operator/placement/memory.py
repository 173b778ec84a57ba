"""How the memory of a group's GPUs is divided among its engines."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_operator.placement.problem import Group, Nodes, Service


def divide_kv(group: Group, services: Sequence[Service], nodes: Nodes) -> list[int] | None:
    """Return the tokens of KV for each member of `group`, in order; None if its engines do not fit.

    Each gets what its longest request needs, and of the rest a part in proportion to its demand; equal parts
    if none of them is asked anything.
    """
    members = [services[member] for member in group.members]
    if any(group.gpus not in member.costs for member in members):
        return None
    room = group.gpus * (nodes.usable_bytes - nodes.reserved_bytes * len(members))
    room -= sum(member.weight_bytes + member.longest * member.kv_bytes_per_token for member in members)
    if room < 0:
        return None
    demands = [member.kv_demand for member in members]
    if not any(demands):
        demands = [1.0] * len(members)
    return [
        member.longest + int(room * demand / sum(demands)) // member.kv_bytes_per_token
        for member, demand in zip(members, demands, strict=True)
    ]

"""What Envoy refuses or closes before it is too much, or before its pod ends."""

from typing import Any

from headrace_gateway.xds.filters import typed_config

CONNECTIONS = 50_000
HEAP = "envoy.resource_monitors.fixed_heap"
DRAINING = "envoy.resource_monitors.injected_resource"
IDLE_WHILE_DRAINING = "1s"  # a new connection must have the time to send its request


def overload_manager(memory_bytes: int | str, drain_file: str) -> dict[str, Any]:
    """Make Envoy's overload manager: for a heap of `memory_bytes`, and a pod that ends.

    Memory is mostly bodies that wait for the picker or are still coming. The heap is not all that counts
    against the limit, so shares of it are far below one. Cut are the requests that hold most, over 1 MiB.

    Envoy's own draining leaves idle connections open, and a request that begins on one as the pod ends would
    be cut. With a `drain_file` they are closed as soon as that file says 1; it must say 0 before.
    """
    monitors = [
        typed_config(
            "envoy.resource_monitors.global_downstream_max_connections",
            "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
            max_active_downstream_connections=CONNECTIONS,
        ),
        typed_config(
            HEAP,
            "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
            max_heap_size_bytes=memory_bytes,
        ),
    ]
    actions = [
        _action("shrink_heap", HEAP, threshold={"value": 0.6}),
        _action("stop_accepting_requests", HEAP, threshold={"value": 0.7}),
        _action(
            "reset_high_memory_stream",
            HEAP,
            scaled={"scaling_threshold": 0.75, "saturation_threshold": 0.85},
        ),
    ]
    if drain_file:
        monitors.append(
            typed_config(
                DRAINING,
                "envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig",
                filename=drain_file,
            )
        )
        idle = {"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": IDLE_WHILE_DRAINING}
        timers = typed_config(
            "", "envoy.config.overload.v3.ScaleTimersOverloadActionConfig", timer_scale_factors=[idle]
        )
        close_idle = _action("reduce_timeouts", DRAINING, threshold={"value": 1})
        actions.append({**close_idle, "typed_config": timers["typed_config"]})
    return {
        "refresh_interval": "0.1s",
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": 20},
        "resource_monitors": monitors,
        "actions": actions,
    }


def _action(name: str, monitor: str, **trigger: Any) -> dict[str, Any]:
    return {"name": f"envoy.overload_actions.{name}", "triggers": [{"name": monitor, **trigger}]}

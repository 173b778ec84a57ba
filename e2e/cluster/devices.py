"""What a DRA driver tells the cluster: a class of devices, and which of them a node has."""

from collections.abc import Mapping, Sequence


def device_class(driver: str, *conditions: str) -> dict[str, object]:
    """Make the class of a driver's devices that fulfil all conditions, in CEL; it bears the driver's name."""
    expression = " && ".join((f"device.driver == '{driver}'", *conditions))
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def slice_name(driver: str, node: str) -> str:
    """Name the ResourceSlice with a driver's devices of a node."""
    return f"{node}-{driver}"


def resource_slice(driver: str, node: str, devices: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Make the list of a driver's devices on a node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(driver, node)},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }

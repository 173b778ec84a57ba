"""Engine arguments and environment variables that Headrace sets itself, and the field to use instead.

vLLM accepts `--max_model_len` for `--max-model-len` and unambiguous prefixes, so the check reads underscores
as dashes and refuses every beginning of a reserved name. No argument of vLLM's own is such a beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace_operator.api.base import rule

# By the field to use instead: first the option that the operator passes for it, if it passes any.
FLAGS_BY_FIELD: Mapping[str, tuple[str, ...]] = {
    "spec.model.source": ("--model",),
    "spec.model.servedName": ("--served-model-name",),
    "spec.model.revision": ("--revision",),
    "spec.model.tokenSecretRef": ("--hf-token",),
    "spec.model.cache": ("--download-dir",),
    "spec.engine.tensorParallelSize": (
        "--tensor-parallel-size",
        "-tp",
        "--pipeline-parallel-size",
        "-pp",
    ),
    "spec.engine.maxModelLen": ("--max-model-len",),
    "spec.engine.gpuMemoryUtilizationPercent": ("--gpu-memory-utilization",),
    "spec.engine.blockSize": ("--block-size",),
    "spec.replicas": (
        "--data-parallel-size",
        "-dp",
        "--data-parallel-size-local",
        "-dpl",
        "--data-parallel-rank",
        "-dpn",
        "--data-parallel-start-rank",
        "-dpr",
        "--data-parallel-hybrid-lb",
        "-dph",
        "--data-parallel-external-lb",
        "-dpe",
        "--headless",
    ),
    "spec.scheduling.policy": ("--scheduler-cls", "--scheduling-policy"),
    "spec.disruption.drainTimeout": ("--shutdown-timeout",),
}
HOST_FLAG, PORT_FLAG = "--host", "--port"

ARGUMENTS: Mapping[str, str] = {
    **{flag: f"use {field}" for field, flags in FLAGS_BY_FIELD.items() for flag in flags},
    HOST_FLAG: "the operator sets it",
    PORT_FLAG: "the operator sets it",
    "--uds": "the gateway reaches engines by TCP",
    "--ssl-keyfile": "the gateway speaks plain HTTP to engines",
    "--ssl-certfile": "the gateway speaks plain HTTP to engines",
    "--nnodes": "a replica runs on one node",
    "-n": "a replica runs on one node",
    "--node-rank": "a replica runs on one node",
    "-r": "a replica runs on one node",
    "--master-addr": "a replica runs on one node",
    "--config": "write the arguments into spec.engine.args",
}

# By the field to use instead: the variable that the operator sets.
VARIABLE_BY_FIELD: Mapping[str, str] = {
    "spec.model.cache": "HF_HOME",
    "spec.model.tokenSecretRef": "HF_TOKEN",
}

ENVIRONMENT: Mapping[str, str] = {
    **{variable: f"use {field}" for field, variable in VARIABLE_BY_FIELD.items()},
    "VLLM_PLUGINS": "leave it out: vLLM then loads every plugin, Headrace's among them",
    "HEADRACE_DIR": "the operator sets it",
}


_OPTIONS_ONLY = "write options only"


def passed_flag(field: str) -> str:
    """Return the option of vLLM that the operator passes for this field."""
    return FLAGS_BY_FIELD[field][0]


def find_reserved_argument(arguments: Iterable[str]) -> str | None:
    """Name the first argument that Headrace reserves, and what to write instead; None if there is none."""
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag == "--":
            return f"engine.args: {flag}: {_OPTIONS_ONLY}"
        if len(flag) > 1 and flag.startswith("-"):
            for name in sorted(ARGUMENTS):  # a whole name comes before those that it begins
                if name.startswith(flag):
                    return f"engine.args: {name} is reserved: {ARGUMENTS[name]}"
    return None


def find_reserved_variable(names: Iterable[str]) -> str | None:
    """Name the first variable that Headrace reserves, and what to write instead; None if there is none."""
    for name in names:
        if name in ENVIRONMENT:
            return f"engine.env: {name} is reserved: {ENVIRONMENT[name]}"
    return None


def argument_rules() -> list[dict[str, str]]:
    """Make the CEL rules for `engine.args`, one per group of flags with the same advice."""
    option = "a.startsWith('-') && !(a in ['-', '--'])"
    begins = "f.startsWith(a.split('=')[0].replace('_', '-'))"
    return [
        rule("!self.exists(a, a == '--')", f"-- is reserved: {_OPTIONS_ONLY}"),
        *(
            rule(
                f"!self.exists(a, {option} && {_cel_list(flags)}.exists(f, {begins}))",
                f"{' and '.join(flags)} {'is' if len(flags) == 1 else 'are'} reserved: {advice}",
            )
            for advice, flags in _grouped(ARGUMENTS).items()
        ),
    ]


def variable_rules() -> list[dict[str, str]]:
    """Make the CEL rules for `engine.env`."""
    return [
        rule(
            f"!self.exists(e, e.name in {_cel_list(names)})",
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} reserved: {advice}",
        )
        for advice, names in _grouped(ENVIRONMENT).items()
    ]


def _grouped(table: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, advice in table.items():
        groups.setdefault(advice, []).append(name)
    return groups


def _cel_list(words: list[str]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"

"""Engine arguments and environment variables that Headrace sets itself, and the field to use instead.

vLLM accepts `--max_model_len` for `--max-model-len` and unambiguous prefixes, so the check reads underscores
as dashes and refuses every beginning of a reserved name. No argument of vLLM's own is such a beginning.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_operator.api.base import rule

ARGUMENTS = {
    "--model": "use spec.model.source",
    "--served-model-name": "use spec.model.servedName",
    "--revision": "use spec.model.revision",
    "--hf-token": "use spec.model.tokenSecretRef",
    "--download-dir": "use spec.model.cache",
    "--host": "the operator sets it",
    "--port": "the operator sets it",
    "--uds": "the gateway reaches engines by TCP",
    "--ssl-keyfile": "the gateway speaks plain HTTP to engines",
    "--ssl-certfile": "the gateway speaks plain HTTP to engines",
    "--tensor-parallel-size": "use spec.engine.tensorParallelSize",
    "-tp": "use spec.engine.tensorParallelSize",
    "--pipeline-parallel-size": "use spec.engine.tensorParallelSize",
    "-pp": "use spec.engine.tensorParallelSize",
    "--data-parallel-size": "use spec.replicas",
    "-dp": "use spec.replicas",
    "--data-parallel-size-local": "use spec.replicas",
    "-dpl": "use spec.replicas",
    "--data-parallel-rank": "use spec.replicas",
    "-dpn": "use spec.replicas",
    "--data-parallel-start-rank": "use spec.replicas",
    "-dpr": "use spec.replicas",
    "--data-parallel-hybrid-lb": "use spec.replicas",
    "-dph": "use spec.replicas",
    "--data-parallel-external-lb": "use spec.replicas",
    "-dpe": "use spec.replicas",
    "--headless": "use spec.replicas",
    "--nnodes": "a replica runs on one node",
    "-n": "a replica runs on one node",
    "--node-rank": "a replica runs on one node",
    "-r": "a replica runs on one node",
    "--master-addr": "a replica runs on one node",
    "--max-model-len": "use spec.engine.maxModelLen",
    "--gpu-memory-utilization": "use spec.engine.gpuMemoryUtilizationPercent",
    "--block-size": "use spec.engine.blockSize",
    "--scheduler-cls": "use spec.scheduling.policy",
    "--scheduling-policy": "use spec.scheduling.policy",
    "--shutdown-timeout": "use spec.disruption.drainTimeout",
    "--config": "write the arguments into spec.engine.args",
}

ENVIRONMENT = {
    "HF_HOME": "use spec.model.cache",
    "HF_TOKEN": "use spec.model.tokenSecretRef",
    "VLLM_PLUGINS": "leave it out: vLLM then loads every plugin, Headrace's among them",
    "HEADRACE_DIR": "the operator sets it",
}


_OPTIONS_ONLY = "write options only"


def reserved_argument(arguments: Iterable[str]) -> str | None:
    """What is wrong with the first argument that Headrace reserves, or None."""
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag == "--":
            return f"engine.args: {flag}: {_OPTIONS_ONLY}"
        if len(flag) > 1 and flag.startswith("-"):
            for name in sorted(ARGUMENTS):  # a whole name comes before those that it begins
                if name.startswith(flag):
                    return f"engine.args: {name} is reserved: {ARGUMENTS[name]}"
    return None


def reserved_variable(names: Iterable[str]) -> str | None:
    """What is wrong with the first environment variable that Headrace reserves, or None."""
    for name in names:
        if name in ENVIRONMENT:
            return f"engine.env: {name} is reserved: {ENVIRONMENT[name]}"
    return None


def argument_rules() -> list[dict[str, str]]:
    """CEL for `engine.args`, one rule per group of flags with the same advice."""
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
    """CEL for `engine.env`."""
    return [
        rule(
            f"!self.exists(e, e.name in {_cel_list(names)})",
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} reserved: {advice}",
        )
        for advice, names in _grouped(ENVIRONMENT).items()
    ]


def _grouped(table: dict[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, advice in table.items():
        groups.setdefault(advice, []).append(name)
    return groups


def _cel_list(words: list[str]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"

"""A KV connector of vLLM's own interface that loads nothing, but takes as long as one that does."""

from __future__ import annotations

from dataclasses import dataclass, field

from ep_adapter_trial import configured
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.outputs import KVConnectorOutput


class Loads(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's side: whoever asks for it in `kv_transfer_params` has its whole prompt loaded."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if not (request.kv_transfer_params or {}).get("do_remote_prefill"):
            return 0, False
        return request.num_prompt_tokens - 1 - num_computed_tokens, True

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens:
            request.kv_transfer_params["do_remote_prefill"] = False

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def request_finished_all_groups(self, request, block_ids):
        return False, None

    # The worker's side, which no scheduler calls.
    def start_load_kv(self, forward_context, **kwargs): ...

    def wait_for_layer_load(self, layer_name): ...

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs): ...

    def wait_for_save(self): ...


def connected(monkeypatch):
    """Schedulers made from now on have the connector."""

    def connect(config):
        config.kv_transfer_config = KVTransferConfig(
            kv_connector="Loads",
            kv_connector_module_path=__name__,
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
        )

    configured(monkeypatch, connect)


@dataclass
class Transfers:
    """The worker's side: a load is there after `steps` steps; those in `failing` fail."""

    scheduler: object
    steps: int = 40
    failing: set = field(default_factory=set)
    most: int = 0  # loads under way at once
    done: int = 0

    def __post_init__(self):
        self._left: dict[str, int] = {}
        self._take_in = self.scheduler.update_from_output
        self.scheduler.update_from_output = self

    def __call__(self, output, result):
        loading = {
            name
            for name, request in self.scheduler.requests.items()
            if request.status.name == "WAITING_FOR_REMOTE_KVS"
            and name not in self.scheduler.finished_recving_kv_req_ids
        }
        # Who left meanwhile is told of all the same: only then does vLLM free its blocks.
        left = {name for name in self._left if name in self.scheduler.requests}
        self._left = {name: self._left.get(name, self.steps) - 1 for name in loading | left}
        self.most = max(self.most, len(loading))
        ready = {name for name, steps in self._left.items() if steps <= 0}
        self.done += len(ready)
        for name in ready:
            del self._left[name]
        if ready:
            result.kv_connector_output = KVConnectorOutput(
                finished_recving=ready, failed_recving=ready & self.failing
            )
        return self._take_in(output, result)


def remote(request):
    """`request` with its prompt's KV elsewhere."""
    request.kv_transfer_params = {"do_remote_prefill": True}
    return request

"""An engine with speculative decoding: vLLM's accounting of drafts, and a model that accepts some of them."""

from __future__ import annotations

from ep_adapter_trial import configured
from vllm.config import SpeculativeConfig
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from headrace_engine.sim.loop import ANY_TOKEN, VirtualEngine

DRAFTS = 4


def drafting(monkeypatch):
    """Schedulers made from now on plan with drafts."""

    def draft(config):
        config.speculative_config = SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=DRAFTS,
            prompt_lookup_max=4,
            target_model_config=config.model_config,
            target_parallel_config=config.parallel_config,
        )

    configured(monkeypatch, draft)


class DraftingEngine(VirtualEngine):
    """`accepted` of the drafts of each request are right in every step."""

    accepted = 3

    def _deliver(self):
        output, sampled = self._in_flight.popleft()
        self.clock.now += self.cost(output)
        names, drafted = list(sampled), output.scheduled_spec_decode_tokens
        tokens = [
            [ANY_TOKEN] * (1 + min(self.accepted, len(drafted.get(name, ())))) if sampled[name] else []
            for name in names
        ]
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=tokens,
        )
        results = self.scheduler.update_from_output(output, result)
        if self.depth == 1:  # planned ahead, vLLM puts placeholders for drafts by itself
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[ANY_TOKEN] * DRAFTS for _ in names]))
        for each in results.values():
            for item in each.outputs:
                self.tokens.setdefault(item.request_id, []).extend(item.new_token_ids)
                if item.finish_reason is not None:
                    self.finished[item.request_id] = self.clock.now

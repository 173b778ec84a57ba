"""Lets a request go on after output tokens that another engine has delivered (`contracts.resume_arguments`).

They become the request's output before its first step, as after a preemption: vLLM computes prompt and output
anew and samples the next token. The request is as old as it is, and waits ahead of new ones. Stop conditions,
limits and penalties then count the tokens by themselves. Three things do not: the grammar of a structured
output has to take them in, a seeded request's generator has to be where it would be (`seeded_draws`), and
vLLM's front end has to see them, for it finds stop strings, tool calls and whole characters over the edge. So
they are put out once more, with the first token that is new.

Each of vLLM's processes takes its part: the front end refuses what can't be resumed, the engine core makes
the request, workers copy it. From core to worker the ids are `Delivered`, which no client can send.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import Request

from headrace_engine.adapter.vllm_types import EngineCoreOutputs, VllmRequest
from headrace_engine.contracts.resume_arguments import RESUME_IDS, ResumeKey, Resumption, read_resumption
from headrace_engine.control.document_file import DocumentFile
from headrace_engine.control.paths import resume_key_path

DEVICES = frozenset({"cpu", "cuda"})  # on which `seeded_draws` knows how to
UNKNOWN_LOGPROB = -9999.0  # vLLM's own floor, for tokens whose logprobs the other engine has told


class Delivered(tuple[int, ...]):
    """Output tokens that another engine delivered; their signature was checked in this engine's core."""


def delivered_of(params: Any) -> Delivered | None:
    """Return what a request with these sampling parameters goes on after, in the core and in workers."""
    found = (getattr(params, "extra_args", None) or {}).get(RESUME_IDS)
    return found if isinstance(found, Delivered) else None


def _find_key(root: Path) -> DocumentFile[ResumeKey]:
    return DocumentFile(resume_key_path(root), ResumeKey, "requests can't be resumed")


def _signed_resumption(key_file: DocumentFile[ResumeKey], request: Any) -> Resumption | None:
    """Return what an `EngineCoreRequest` asks to go on from; None if nothing, or without a signature."""
    params = request.sampling_params  # None for pooling
    if params is None or not params.extra_args or RESUME_IDS not in params.extra_args:
        return None
    key = key_file.read()
    return read_resumption(key, params.extra_args) if key is not None else None


def _signed_tokens(key_file: DocumentFile[ResumeKey], request: Any) -> tuple[int, ...]:
    resumption = _signed_resumption(key_file, request)
    return () if resumption is None else resumption.token_ids


def take_part_in_front_end(root: Path) -> None:
    """Refuse signed requests that can't be resumed, and hand the outputs of the others on one by one.

    As for vLLM's own refusals, the answer has status 400 and the reason.
    """
    from vllm.v1.engine.input_processor import InputProcessor  # noqa: PLC0415  the core does without
    from vllm.v1.engine.output_processor import OutputProcessor  # noqa: PLC0415

    from headrace_engine.adapter.unmerged_outputs import keep_apart  # noqa: PLC0415

    key_file = _find_key(root)
    stock, stock_add = InputProcessor.process_inputs, OutputProcessor.add_request

    @functools.wraps(stock)
    def process_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = stock(self, *args, **kwargs)
        delivered = _signed_tokens(key_file, request)
        if delivered and (reason := explain_refusal(request, delivered, self.vllm_config)):
            raise VLLMValidationError(f"this generation can't be resumed: {reason}")
        return request

    @functools.wraps(stock_add)
    def add_request(self: Any, request: Any, prompt: Any, *args: Any, **kwargs: Any) -> None:
        queue = args[2] if len(args) > 2 else kwargs.get("queue")
        if queue is not None and _signed_tokens(key_file, request):
            keep_apart(queue)
        stock_add(self, request, prompt, *args, **kwargs)

    InputProcessor.process_inputs = process_inputs
    OutputProcessor.add_request = add_request


def explain_refusal(request: Any, delivered: Sequence[int], config: Any) -> str | None:
    """Explain why `request`, an `EngineCoreRequest`, can't go on after `delivered`; None if it can."""
    params, longest = request.sampling_params, config.model_config.max_model_len
    vocabulary = config.model_config.get_vocab_size()
    if strange := [each for each in delivered if not 0 <= each < vocabulary]:
        return f"{strange[0]} is not among the model's {vocabulary} tokens"
    if request.prompt_token_ids is None:
        return "its prompt is embeddings"
    if len(request.prompt_token_ids) + len(delivered) >= longest:
        return f"its prompt and what was delivered fill the model's {longest} tokens"
    if len(delivered) >= params.max_tokens:
        return f"all of its {params.max_tokens} tokens were delivered"
    if params.n > 1:
        return f"it asks for {params.n} answers"
    if params.prompt_logprobs is not None:
        return "it asks for logprobs of its prompt"
    if params.seed is not None:
        if config.speculative_config is not None:
            return "a seed can't be followed through speculative decoding"
        if current_platform.device_type not in DEVICES:
            return f"a seed can't be followed on {current_platform.device_type}"
    return None


def take_part_in_worker() -> None:
    """Let the first model runner's copy of a request begin with what was delivered; V2 is sent it by vLLM."""
    from vllm.v1.worker.gpu_input_batch import CachedRequestState  # noqa: PLC0415  of workers

    from headrace_engine.adapter import seeded_draws  # noqa: PLC0415

    stock = CachedRequestState.__post_init__

    @functools.wraps(stock)
    def post_init(self: Any) -> None:
        delivered = delivered_of(self.sampling_params)
        if delivered is not None and not self.output_token_ids:
            self.output_token_ids.extend(delivered)
        if self.generator is not None:
            self.generator = seeded_draws.generator_after(self.generator, len(delivered or ()))
        stock(self)

    CachedRequestState.__post_init__ = post_init
    seeded_draws.take_part_in_samplers()


class ResumedRequests:
    """The resumed requests of one engine's core."""

    def __init__(self) -> None:
        self.silent: dict[str, Delivered] = {}  # those without a new token, by their id

    def add(self, request: VllmRequest) -> None:
        """Take in a request that was handed to the scheduler."""
        delivered = delivered_of(request.sampling_params)
        if delivered is not None:
            self.silent[request.request_id] = delivered

    def put_out(self, results: dict[int, EngineCoreOutputs], live: Collection[str]) -> None:
        """Put what was delivered before a request's first new tokens, and forget those not `live` any more.

        `results` are by client, `live` the ids of the requests that have not ended.
        """
        for of_client in results.values():
            of_client.outputs = [each for output in of_client.outputs for each in self._whole(output)]
        for ended in self.silent.keys() - live:
            del self.silent[ended]

    def _whole(self, output: Any) -> list[Any]:
        delivered = self.silent.pop(output.request_id, None) if output.new_token_ids else None
        if delivered is None:
            return [output]
        has_logprobs = output.new_logprobs is not None
        return [*(_output_of(output.request_id, token, has_logprobs) for token in delivered), output]


def _output_of(request_id: str, token: int, has_logprobs: bool) -> EngineCoreOutput:
    logprobs = None
    if has_logprobs:
        ids = np.array([[token]], dtype=np.int32)
        logprobs = LogprobsLists(ids, np.full(ids.shape, UNKNOWN_LOGPROB, np.float32), np.ones(1, int))
    return EngineCoreOutput(request_id, new_token_ids=[token], new_logprobs=logprobs)


def take_part_in_core(structured_outputs: Any, root: Path) -> None:
    """Let this process's requests begin with what was delivered, and their grammars know of it.

    `structured_outputs` is vLLM's `StructuredOutputManager`.
    """
    _accept(_find_key(root))
    _advance_grammars(structured_outputs)


def _accept(key_file: DocumentFile[ResumeKey]) -> None:
    requests: Any = Request
    stock = requests.from_engine_core_request.__func__
    if hasattr(stock, "__wrapped__"):  # another engine of this process was here
        return

    @functools.wraps(stock)
    def from_engine_core_request(cls: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        resumption = _signed_resumption(key_file, request)
        delivered = () if resumption is None else resumption.token_ids
        if delivered:
            params = request.sampling_params
            params.extra_args = {**params.extra_args, RESUME_IDS: Delivered(delivered)}
        made = stock(cls, request, *args, **kwargs)
        if resumption is not None:
            made.resumption = resumption
            made.arrival_time = min(made.arrival_time, resumption.arrival)
        if delivered:
            made.append_output_token_ids(list(delivered))
            made.prefill_stats = None  # as after a preemption: more than the prompt may be cached
        return made

    requests.from_engine_core_request = classmethod(from_engine_core_request)


def _advance_grammars(manager: Any) -> None:
    """Let grammars take in what was delivered; vLLM ends a request whose grammar can't be made."""
    stock = manager._create_grammar
    find_start = getattr(manager, "_get_constraint_bounds", None)  # since vLLM 0.32

    @functools.wraps(stock)
    def create_grammar(request: Any) -> Any:
        grammar = stock(request)
        delivered = delivered_of(request.sampling_params)
        if delivered is not None:
            tokens = list(delivered)
            if find_start is not None:
                start = find_start(request, tokens, spec_tokens_committed=True).grammar_start
            else:
                start = manager._get_constraint_start(request, tokens, spec_tokens_committed=True)
            if start <= len(tokens):
                request.structured_output_request.reasoning_ended = True
                if not grammar.accept_tokens(request.request_id, tokens[start:]):
                    raise ValueError("the tokens that were delivered do not fit the request's grammar")
        return grammar

    manager._create_grammar = create_grammar

# vLLM for CPUs in the local cluster. The packages themselves (6 GB) are mounted from a volume, not copied.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
COPY vllm_cpu /opt/vllm/plugins
# There is no compiler here, and vLLM compiles kernels also with --enforce-eager, the first at the first request
# with `logprobs`; where it cannot, the engine ends. So PyTorch runs the same code uncompiled.
ENV TORCH_COMPILE_DISABLE=1
ENV PYTHONPATH=/opt/vllm/plugins:/opt/vllm/site-packages HOME=/tmp
USER 65532:65532

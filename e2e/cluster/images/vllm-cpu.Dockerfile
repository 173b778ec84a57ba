# vLLM for CPUs in the local cluster. The packages themselves (6 GB) are mounted from a volume, not copied.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
ENV PYTHONPATH=/opt/vllm/site-packages HOME=/tmp
USER 65532:65532

# The gateway's endpoint picker, which Envoy asks for a host per request.
# The build context is a folder of wheels (requirements/wheels.sh makes it), so the build needs no network:
#   docker build -f sidecar/gateway.Dockerfile dist/wheels/gateway
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
COPY . /wheels
RUN python3 -m venv /opt/headrace \
 && /opt/headrace/bin/pip install --no-cache-dir --no-index --find-links=/wheels 'headrace-sidecar[gateway]' \
 && /opt/headrace/bin/pip uninstall --yes --quiet pip setuptools

FROM ${BASE}
LABEL org.opencontainers.image.title="headrace-gateway" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/headrace /opt/headrace
# The root file system is mounted read-only in the cluster: bytecode was compiled above.
ENV PATH=/opt/headrace/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "headrace_sidecar.gateway"]

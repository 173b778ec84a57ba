# The gateway's endpoint picker, which Envoy asks for a host per request.
# The build context is a folder of wheels (requirements/wheels.sh makes it), so the build needs no network:
#   docker build -f sidecar/gateway.Dockerfile dist/wheels/gateway
ARG BASE=python:3.11-slim-bookworm

# Locked packages and our own are separate layers: a change of ours leaves the large one as it is.
FROM ${BASE} AS packages
COPY locked /wheels/locked
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/headrace \
 && /opt/pip/bin/pip --python /opt/headrace/bin/python install --no-cache-dir --no-index --no-deps /wheels/locked/*.whl

FROM packages AS code
COPY ours /wheels/ours
RUN /opt/pip/bin/pip install --no-cache-dir --no-index --no-deps --target /opt/code /wheels/ours/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="headrace-gateway" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=packages /opt/headrace /opt/headrace
COPY --from=code /opt/code /opt/code
# The root file system is mounted read-only in the cluster: bytecode was compiled above.
ENV PATH=/opt/headrace/bin:$PATH PYTHONPATH=/opt/code PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "headrace_sidecar.gateway"]

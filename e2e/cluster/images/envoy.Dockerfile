# Envoy for the local cluster, from the binary that the tests run; elsewhere the chart takes envoyproxy/envoy.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
COPY envoy /usr/local/bin/envoy
USER 101:101
ENTRYPOINT ["envoy"]

#!/usr/bin/env bash
# Build the three images and push them: requirements/images.sh REGISTRY TAG. PUSH=no only builds.
# Uses docker, or podman where there is no docker; log in to the registry first.
set -euo pipefail
[ $# = 2 ] || { echo "usage: requirements/images.sh REGISTRY TAG, e.g. example.com/headrace 0.1.0" >&2; exit 2; }
cd "$(dirname "$0")/.."
tool="$(command -v docker || command -v podman)" || { echo "images.sh: needs docker or podman" >&2; exit 1; }

requirements/wheels.sh dist/wheels
image() {  # NAME DOCKERFILE
  "$tool" build --file "$2" --tag "$3/$1:$4" "dist/wheels/$1"
  [ "${PUSH:-yes}" = no ] || "$tool" push "$3/$1:$4"
}
image operator operator/Dockerfile "$@"
image sidecar sidecar/engine/Dockerfile "$@"
image gateway sidecar/gateway/Dockerfile "$@"
echo "install with: helm install headrace charts/headrace --set image.registry=$1 --set image.tag=$2"

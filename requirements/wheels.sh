#!/usr/bin/env bash
# Gather the wheels of each image: OUT/{operator,sidecar,gateway}, each one a complete build context.
# `locked` has the third-party wheels, checked against their hashes; `ours` is built from this tree.
# An image build then needs no network. Idempotent: an unchanged lock is not downloaded again.
set -euo pipefail
[ $# = 1 ] || { echo "usage: requirements/wheels.sh OUT" >&2; exit 2; }
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."

source requirements/download.sh
build() {  # PROJECT DIR...
  local wheel project="$1" name="headrace_$2"
  shift 2
  "$tools/bin/python" -m build --quiet --wheel --no-isolation --outdir "$out/built" "./$project"
  wheel=("$out/built/$name"-*.whl)
  for image in "$@"; do
    mkdir -p "$out/$image/ours"
    cp "${wheel[@]}" "$out/$image/ours/"
  done
}

for image in operator sidecar gateway; do
  echo "wheels: $image"
  download "requirements/$image.txt" "$out/$image/locked"
  rm -rf "$out/$image/ours"
done
rm -rf "$out/built"
build engine_patches engine operator sidecar gateway
build sidecar/engine sidecar sidecar
build sidecar/gateway gateway gateway
build operator operator operator
rm -rf "$out/built"

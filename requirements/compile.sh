#!/usr/bin/env bash
# Relock every requirements/*.in with hashes. No index address is written into the locks.
set -euo pipefail
cd "$(dirname "$0")"
lock() {
  uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
    --python-version 3.11 --python-platform x86_64-manylinux_2_34 --override engine-override.txt \
    --custom-compile-command requirements/compile.sh "$@"
}
lock dev.in -o dev.txt
for part in operator sidecar gateway engine build; do
  # the images run what the tests ran
  lock "$part.in" -c dev.txt -o "$part.txt"
done
lock gpu.in -o gpu.txt  # vLLM for CUDA asks for other versions than vLLM for CPUs

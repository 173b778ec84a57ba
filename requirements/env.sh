#!/usr/bin/env bash
# Make .venv: the locked packages and the four distributions, editable. Idempotent; a second run takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headrace"
uv="$cache/uv/bin/uv"
if [ ! -x "$uv" ]; then
  echo "installing uv into $cache/uv"
  python3 -m venv "$cache/uv"
  "$cache/uv/bin/pip" install --quiet uv==0.13.8
fi
stamp=.venv/.locked
lock="$(cat requirements/dev.txt requirements/vllm/pyproject.toml */pyproject.toml sidecar/*/pyproject.toml | sha256sum)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$lock" ]; then
  [ -x .venv/bin/python ] || "$uv" venv --quiet --python 3.11 .venv
  VIRTUAL_ENV=.venv "$uv" pip sync --require-hashes requirements/dev.txt
  VIRTUAL_ENV=.venv "$uv" pip install --quiet --no-deps --no-build-isolation \
    ./requirements/vllm -e ./engine_patches -e ./sidecar/engine -e ./sidecar/gateway -e ./operator
  echo "$lock" > "$stamp"
fi

#!/usr/bin/env bash
# Gather the wheels of each image: OUT/{operator,sidecar,gateway}, each one a complete build context.
# `locked` has the third-party wheels, checked against their hashes; `ours` is built from this tree.
# An image build then needs no network. Idempotent: an unchanged lock is not downloaded again.
set -euo pipefail
[ $# = 1 ] || { echo "usage: requirements/wheels.sh OUT" >&2; exit 2; }
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."

# Only what builds wheels, not the development environment with vLLM and torch.
tools="${XDG_CACHE_HOME:-$HOME/.cache}/headrace/build"
lock="$(sha256sum requirements/build.txt)"
if [ "$(cat "$tools/.locked" 2>/dev/null)" != "$lock" ]; then
  echo "installing the build tools into $tools"
  python3 -m venv --clear "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement requirements/build.txt
  echo "$lock" > "$tools/.locked"
fi

platforms=(--platform any)
for glibc in 2014 _2_17 _2_28 _2_34; do
  platforms+=(--platform "manylinux${glibc}_$(uname -m)")
done
download() {  # LOCK DIR
  local digest
  digest="$(sha256sum "$1" | cut -d' ' -f1)"
  if [ "$(cat "$2.lock" 2>/dev/null)" != "$digest" ]; then
    rm -rf "$2" && mkdir -p "$2"
    "$tools/bin/pip" download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
      --python-version 3.11 --implementation cp "${platforms[@]}" --requirement "$1" --dest "$2"
    echo "$digest" > "$2.lock"
  fi
}
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

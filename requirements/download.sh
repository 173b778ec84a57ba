# Sourced: build tools in $tools, and `download LOCK DIR`, which checks wheels against their hashes.
# Run from the repository's root. Idempotent: an unchanged lock is not downloaded again.
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
for glibc in 2014 _2_{17..34}; do
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

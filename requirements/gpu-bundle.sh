#!/usr/bin/env bash
# Gather all that `python -m e2e.bench.live --device cuda` needs in one folder: requirements/gpu-bundle.sh OUT.
# On a host with an NVIDIA driver, Python 3.11 and no network, OUT/run.sh makes an environment of it and measures.
set -euo pipefail
[ $# = 1 ] || { echo "usage: requirements/gpu-bundle.sh OUT" >&2; exit 2; }
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."

source requirements/download.sh
echo "wheels: vLLM for CUDA, some gigabytes"
download requirements/gpu.txt "$out/locked"
rm -rf "$out/ours" "$out/source"
for project in engine_patches sidecar/engine sidecar/gateway operator; do
  "$tools/bin/python" -m build --quiet --wheel --no-isolation --outdir "$out/ours" "./$project"
done
mkdir "$out/source"
git archive HEAD | tar -x -C "$out/source"
cp requirements/gpu.txt "$out/gpu.txt"
cat > "$out/run.sh" <<'RUN'
#!/usr/bin/env bash
# Measure; the same command goes on where it was stopped. Results: source/e2e/bench/results/live_cuda.*
set -euo pipefail
cd "$(dirname "$0")"
if [ ! -f venv/.made ]; then
  python3.11 -m venv --clear venv
  venv/bin/pip install --quiet --no-index --find-links locked --require-hashes --requirement gpu.txt
  venv/bin/pip install --quiet --no-index --no-deps ours/*.whl
  touch venv/.made
fi
export XDG_CACHE_HOME="$PWD/cache" PYTHONHASHSEED=0
cd source
exec ../venv/bin/python -m e2e.bench.live --device cuda "$@"
RUN
chmod +x "$out/run.sh"
du -sh "$out"

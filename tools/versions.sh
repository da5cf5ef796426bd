#!/usr/bin/env bash
# Runs every operator, and the small tests of joins, from a wheel with other versions than those of constraints.txt.
#
#   tools/versions.sh oldest   the lower bounds of pyproject.toml, PySpark's too
#   tools/versions.sh newest   the newest versions that it allows
#
# PYTHON=... chooses the interpreter; without it, the oldest or the newest supported Python on the PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
    oldest) resolution=lowest-direct candidates='python3.11 python3.12 python3.13' ;;
    newest) resolution=highest candidates='python3.13 python3.12 python3.11' ;;
    *) printf 'usage: tools/versions.sh oldest|newest\n' >&2; exit 2 ;;
esac
base=
for candidate in ${PYTHON:-$candidates}; do
    # Version managers leave commands on the PATH that only say that they are not installed.
    if "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then base=$candidate; break; fi
done
[ -n "$base" ] || { printf 'versions: none of %s runs\n' "${PYTHON:-$candidates}" >&2; exit 1; }

source .venv/java.env
repository=$PWD
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
pip=(-m pip --disable-pip-version-check --no-input -qq)

.venv/bin/python "${pip[@]}" wheel --no-deps --wheel-dir "$outside" .
wheel=$(echo "$outside"/penstock-*.whl)
.venv/bin/python -m venv "$outside/uv"
"$outside/uv/bin/python" "${pip[@]}" install uv
"$base" -m venv "$outside/environment"
python=$outside/environment/bin/python
"$outside/uv/bin/uv" pip install --quiet --python "$python" --resolution "$resolution" "${wheel}[all]"
"$python" --version
"$python" -m pip --disable-pip-version-check freeze | grep -iE '^(numba|numpy|pandas|pyarrow|pyspark)=='

cp tools/smoke*.py "$outside"
export SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON=$python
unset PYTHONPATH
(cd "$outside" && "$python" smoke.py)
"$python" "${pip[@]}" install pytest pytest-timeout hypothesis psutil
PENSTOCK_TIER=interpreted "$python" -m pytest -q -p no:cacheprovider -m 'interpreted and not soak' tests/joins
# What was tested is the wheel, not the checkout.
"$python" -c 'import penstock, sys; sys.exit(penstock.__file__.startswith(sys.argv[1]))' "$repository/"

#!/usr/bin/env bash
# Builds a wheel, installs it into a fresh environment outside the repository, and runs every operator once from
# there: first the light core, then with all extras.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

repository=$PWD
source .venv/java.env
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT

pip=(-m pip --disable-pip-version-check --no-input -qq)
.venv/bin/python "${pip[@]}" wheel --no-deps --wheel-dir "$outside" .
.venv/bin/python -m venv "$outside/environment"
python=$outside/environment/bin/python
wheel=$(echo "$outside"/penstock-*.whl)
cp constraints.txt tools/smoke*.py "$outside"
cd "$outside"
unset PYTHONPATH

"$python" "${pip[@]}" install --constraint constraints.txt "$wheel"
"$python" smoke_light.py
"$python" "${pip[@]}" install --constraint constraints.txt "${wheel}[all]"
PYSPARK_PYTHON=$python "$python" smoke.py
# What was tested is the wheel, not the checkout beside it.
"$python" -c 'import penstock, sys; sys.exit(penstock.__file__.startswith(sys.argv[1]))' "$repository/"

#!/usr/bin/env bash
# Install a wheel outside the checkout and use it, twice: with its core dependencies alone, and with every extra, borrowed
# from .venv so that nothing large is downloaded again. Usage: tests/house/smoke_wheel.sh dist/pate-*.whl
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
wheel=$(realpath "${1:?usage: $0 WHEEL}")
python=$checkout/.venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export COLUMNS=200 TMPDIR=$scratch # no message is wrapped, nothing is left behind
unset PYTHONPATH

fail() {
  echo "smoke_wheel: $*" >&2
  exit 1
}

# A few votes, saved as a user would save them.
"$python" -c 'import numpy; numpy.save("votes.npy", numpy.array([[200, 30, 20], [90, 85, 75]]))'

use_wheel() { # VENV: what must work with and without the extras
  "$1/bin/python" - "$1" <<'PY'
import sys
from pathlib import Path

import pate
from pate.errors import MissingExtra

assert Path(pate.__file__).is_relative_to(Path(sys.argv[1]).resolve()), f"not the installed wheel: {pate.__file__}"
for name in pate.__all__:
    try:
        getattr(pate, name)
    except MissingExtra:  # a hint is what a light installation should give
        assert name in ("DPSGD", "PrivateHuberSVM", "PrivateLogisticRegression") and sys.argv[1] == "light", name
votes = pate.Votes([[200, 30, 20], [90, 85, 75]], n_teachers=250)
release = pate.GNMax(sigma=40).release(votes, pate.OSNoise())
assert len(release) == 2, release
PY
  "$1/bin/pate" --help >/dev/null
  "$1/bin/pate" account votes.npy --aggregator gnmax --set sigma=40 --delta 1e-5 --json |
    "$1/bin/python" -c 'import json, sys; assert json.load(sys.stdin)["epsilon"]["data_independent"] > 0'
}

echo "smoke_wheel: core dependencies alone"
"$python" -m venv light
light/bin/python -m pip install --quiet --disable-pip-version-check -c "$checkout/constraints.txt" "$wheel"
use_wheel light
if light/bin/pate run digits >/dev/null 2>hint.txt; then
  fail "pate run digits needs scikit-learn, matplotlib and Ray, yet ran without them"
fi
grep -qF "pip install 'pate[train,plot,ray]'" hint.txt || fail "no hint at the missing extra: $(cat hint.txt)"
[ "$(wc -l <hint.txt)" -eq 1 ] || fail "the hint must be one line: $(cat hint.txt)"

echo "smoke_wheel: every extra"
"$python" -m venv full
full/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$wheel"
# A line in a .pth file comes last on the path, and .pth files there are not read: .venv's own pate stays out of sight.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$(full/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/heavy.pth"
use_wheel full
full/bin/pate run digits >/dev/null 2>&1
echo "smoke_wheel: ok"

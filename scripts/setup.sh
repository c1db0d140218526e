#!/usr/bin/env bash
# Makes .venv with everything that requirements/dev.txt locks, and Campana itself, editable.
# With uv where it is installed, else with Python's own venv and pip. PYTHON=... names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    # A name on the PATH may be a shim that stands for nothing, so each is run; the path is what the shim led to.
    local name
    for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

as_debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

install_ensurepip() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
    local package
    package=python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    as_debian_root || fail "$1 cannot make environments (no ensurepip). Install uv, or the package $package."
    say "setup: installing $package"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
}

with_uv() {
    if ! [ -x "$venv/bin/python" ] || ! new_enough "$venv/bin/python"; then
        uv venv --quiet --clear --python "$python" "$venv"
    fi
    uv pip install --quiet --quiet --python "$venv/bin/python" --require-hashes -r requirements/dev.txt
    uv pip install --quiet --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
}

with_pip() {
    if ! [ -x "$venv/bin/python" ] || ! new_enough "$venv/bin/python"; then
        install_ensurepip "$python"
        "$python" -m venv --clear "$venv"
    fi
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    "$venv/bin/python" -m pip install --quiet --quiet --require-hashes -r requirements/dev.txt
    "$venv/bin/python" -m pip install --quiet --quiet --no-deps --no-build-isolation --editable .
}

python=$(find_python) || fail "expected Python 3.11 or newer on the PATH, got none. Install it, or set PYTHON."
if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    say "setup: $venv from $python, by uv"
    with_uv || { say "setup: uv could not; trying venv and pip"; rm -rf "$venv"; with_pip; }
else
    say "setup: $venv from $python, by venv and pip"
    with_pip
fi
"$venv/bin/python" -c 'import campana'

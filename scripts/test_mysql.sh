#!/usr/bin/env bash
# The store's tests on a real MySQL. Passes over them, loudly, only where no MySQL can be fetched; a failing test fails.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(tests/store)

own_mysql() { command -v mysqld >/dev/null 2>&1 && ! mysqld --no-defaults --version 2>/dev/null | grep -q MariaDB; }
if [ -z "${CAMPANA_TEST_MYSQL:-}" ] && ! own_mysql; then
    code=0
    bash scripts/get_mysql.sh || code=$?
    if [ "$code" = 75 ]; then
        line='************************************************************************'
        printf '\n%s\n%s\n%s\n%s\n\n' "$line" '* MySQL WAS NOT TESTED: no server is here and none could be fetched.' \
            '* Give one in CAMPANA_TEST_MYSQL to test it.' "$line" >&2
        exit 0
    fi
    [ "$code" = 0 ] || exit "$code"
fi
exec .venv/bin/python -m pytest -n "${WORKERS:-auto}" --dist loadscope --databases mysql "${tests[@]}"

#!/usr/bin/env bash
# The tests start PostgreSQL and MariaDB for themselves, and run an example with Node.js; this installs what is missing, on Debian
# as root. With the word `pgbouncer` also that pooler, for the lane behind it.
# It starts no system service and makes no cluster. Elsewhere it says what is needed, and fails.
set -euo pipefail

have() { PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }
have_postgresql() {
    have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null \
        || { have pg_config && [ -x "$(pg_config --bindir)/initdb" ]; }
}
have_pgbouncer() { have pgbouncer; }
have_node() { have node || have nodejs; }
have_mariadb() { { have mariadb-install-db || have mysql_install_db; } && { have mariadbd || have mysqld; }; }

missing=()
[ -n "${CAMPANA_TEST_POSTGRESQL:-}" ] || have_postgresql || missing+=(postgresql)
[ -n "${CAMPANA_TEST_MARIADB:-}" ] || have_mariadb || missing+=(mariadb)
[ "${1:-}" != pgbouncer ] || [ -n "${CAMPANA_TEST_PGBOUNCER:-}" ] || have_pgbouncer || missing+=(pgbouncer)
have_node || missing+=(node)
[ ${#missing[@]} -gt 0 ] || exit 0

if ! have apt-get || [ "$(id -u)" != 0 ]; then
    for kind in "${missing[@]}"; do
        if [ "$kind" = node ]; then
            echo "tests: expected node on the PATH, for the examples in JavaScript, got none. Install Node.js 18 or later." >&2
            continue
        fi
        echo "tests: expected a $kind server, got none. Install its package, or set CAMPANA_TEST_${kind^^} to the" \
            "URL of one (its user must be allowed to create databases)." >&2
    done
    exit 1
fi

undo=()
trap 'rm -f "${undo[@]}"' EXIT
plant() { # a file that only exists while we install, unless it is already there
    [ -e "$1" ] && return
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1"
    chmod 755 "$1"
    undo+=("$1")
}
plant /usr/sbin/policy-rc.d $'#!/bin/sh\nexit 101'
plant /etc/postgresql-common/createcluster.d/campana.conf 'create_main_cluster = false'

echo "tests: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
packages=()
for kind in "${missing[@]}"; do
    case $kind in
    postgresql) packages+=(postgresql) ;;
    pgbouncer) packages+=(pgbouncer) ;;
    mariadb) packages+=(mariadb-server-core mariadb-client-core) ;;
    node) packages+=(nodejs) ;;
    esac
done
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null </dev/null
have_postgresql || [ -n "${CAMPANA_TEST_POSTGRESQL:-}" ]
have_mariadb || [ -n "${CAMPANA_TEST_MARIADB:-}" ]
[ "${1:-}" != pgbouncer ] || have_pgbouncer
have_node

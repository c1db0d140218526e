#!/usr/bin/env bash
# Unpacks a real MySQL server for the tests: Debian has one in its unstable suite only, so it is fetched from the
# machine's own package mirror and unpacked, with the libraries it needs, into a cache folder. Nothing is installed;
# tests/servers.py runs it by its own loader. About 60 MB to fetch, 330 MB on disk.
#
# Exits 0 with the folder in place, 75 when it could not be fetched, anything else when something is wrong.
set -euo pipefail
cache=${CAMPANA_MYSQL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/campana-mysql}
package=mysql-server-core
unavailable=75

[ -x "$cache/root/usr/sbin/mysqld" ] && exit 0
say() { printf 'get_mysql: %s\n' "$*" >&2; }
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null 2>&1 || { say "expected $tool, got none: this needs Debian or Ubuntu"; exit $unavailable; }
done
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || { say "expected Debian's keys in $keys, got none"; exit $unavailable; }

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two runs at once: the second finds it there
[ -x "$cache/root/usr/sbin/mysqld" ] && exit 0

work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,parts,root}
: >"$work/status"
options=(
    -o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=$work/parts"
    -o "Dir::Etc::PreferencesParts=$work/parts" -o "Dir::State=$work" -o "Dir::State::Lists=$work/lists"
    -o "Dir::State::status=$work/status" -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives"
    -o APT::Sandbox::User= -o Debug::NoLocking=1 -o APT::Architectures="$(dpkg --print-architecture)"
)
# The mirror is the one that this machine already uses.
mirrors=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -v security | sort -u || true)
fetched=
for mirror in $mirrors; do
    echo "deb [signed-by=$keys] $mirror sid main" >"$work/sources.list"
    say "fetching $package"
    if apt-get "${options[@]}" update -qq >&2 \
        && apt-get "${options[@]}" install --download-only --no-install-recommends -y -qq "$package" >/dev/null </dev/null; then
        fetched=yes
        break
    fi
done
[ -n "$fetched" ] || { say "could not fetch $package from this machine's package mirror"; exit $unavailable; }

for deb in "$work"/archives/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
[ -x "$work/root/usr/sbin/mysqld" ] || { say "expected usr/sbin/mysqld in $package, got none"; exit 1; }
rm -rf "$cache/root"
mv "$work/root" "$cache/root"
say "unpacked in $cache"

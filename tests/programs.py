"""Finding the programs of the database servers, and Node.js, or installing them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NODE = "node"
KINDS = ("sqlite", "postgresql", "mariadb", "mysql", "pgbouncer")


class UnavailableError(Exception):
    """A database server is neither given, nor installed, nor could it be installed."""


def provide(kind: str) -> None:
    """The server's programs are installed; installs them where that can be done without asking anybody.

    Raises:
        UnavailableError: they are not, and what to do.

    """
    if _installed(kind):
        return
    script = "get_mysql.sh" if kind == "mysql" else "install_servers.sh"
    print(f"{kind} is not installed; running scripts/{script}", file=sys.stderr)  # noqa: T201 - takes a minute
    done = subprocess.run(["bash", str(ROOT / "scripts" / script), kind], check=False, stdin=subprocess.DEVNULL)
    if done.returncode or not _installed(kind):
        message = f"expected a {kind} server, got none: install one, or give its URL in {variable(kind)}"
        if kind == NODE:
            message = "expected node on the PATH, for the examples in JavaScript, got none: install Node.js 18 or later"
        raise UnavailableError(message)


def variable(kind: str) -> str:
    """The environment variable that gives the URL of a server of this kind."""
    return f"CAMPANA_TEST_{kind.upper()}"


def mysql_cache() -> Path:
    """Where scripts/get_mysql.sh unpacks."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CAMPANA_MYSQL_CACHE") or Path(cache) / "campana-mysql")


def _installed(kind: str) -> bool:
    try:
        if kind == "postgresql":
            postgresql("initdb")
        elif kind == "pgbouncer":
            postgresql("initdb")
            program("pgbouncer")
        elif kind == "mariadb":
            program("mariadb-install-db", "mysql_install_db")
            program("mariadbd", "mysqld")
        elif kind == "mysql":
            mysql_binary()
        elif kind == NODE:
            program("node", "nodejs")
    except UnavailableError:
        return False
    return True


def program(*names: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin"])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    message = f"expected one of {', '.join(names)} on the PATH, got none"
    raise UnavailableError(message)


def postgresql(name: str) -> str:
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)]
    folders += ["/opt/homebrew/bin", "/usr/local/pgsql/bin", "/usr/pgsql/bin", *os.environ.get("PATH", "").split(":")]
    if config := shutil.which("pg_config"):
        asked = subprocess.run([config, "--bindir"], check=False, capture_output=True, text=True)
        folders.append(asked.stdout.strip())
    for folder in folders:
        if folder and os.access(Path(folder, "initdb"), os.X_OK) and os.access(Path(folder, "postgres"), os.X_OK):
            return str(Path(folder, name).resolve())
    message = "expected PostgreSQL's initdb and postgres, got none"
    raise UnavailableError(message)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


def mysql_binary() -> list[str]:
    for path in filter(None, (shutil.which("mysqld"), "/usr/sbin/mysqld", "/usr/local/mysql/bin/mysqld")):
        if Path(path).exists():
            version = subprocess.run([path, "--no-defaults", "--version"], check=False, capture_output=True, text=True)
            if version.returncode == 0 and "MariaDB" not in version.stdout:
                return [path, "--no-defaults"]
    usr = mysql_cache() / "root" / "usr"
    loaders = [*usr.glob("lib/*/ld-linux*.so.*"), *usr.glob("lib64/ld-linux*.so.*")]
    if not loaders or not (usr / "sbin" / "mysqld").exists():
        message = "expected mysqld, got none: run scripts/get_mysql.sh"
        raise UnavailableError(message)
    # unpacked, not installed: its own loader, libraries and messages, wherever the folder is
    libraries = {str(found.parent) for depth in ("*", "*/*") for found in usr.glob(f"lib/{depth}/*.so.*")}
    return [
        *(str(loaders[0]), "--library-path", ":".join(sorted(libraries))),
        *(str(usr / "sbin" / "mysqld"), "--no-defaults"),
        f"--lc-messages-dir={usr / 'share' / 'mysql'}",
        f"--character-sets-dir={usr / 'share' / 'mysql' / 'charsets'}",
        f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
    ]


def a_user(*names: str) -> pwd.struct_passwd:
    for name in names:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    message = f"expected one of the users {', '.join(names)}, got none: PostgreSQL does not run as root"
    raise UnavailableError(message)

"""Where a SQLite file may lie: its locks and its shared memory mean nothing between machines, so never across a network."""

from collections.abc import Iterator
from pathlib import Path

from campana.errors import SettingsError

MOUNTS = Path("/proc/self/mountinfo")
NETWORKED = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "glusterfs", "gfs2", "ocfs2", "beegfs", "gpfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.smbnetfs"),
    }
)


def require_local(path: Path) -> None:
    """Raise if the file lies, or would be made, on a file system that other machines share; where nobody can tell, go on."""
    kind = _kind(path.resolve(), list(_mounts()))
    if kind in NETWORKED:
        raise SettingsError(
            f"{path} is on a network file system ({kind}), where SQLite's locks can't be relied on:"
            " put it on a local disk, or set DATABASE_URL to a database server"
        )


def _kind(path: Path, mounts: list[tuple[Path, str]]) -> str | None:
    # Of those above it the deepest, and of two in one place the later: it covers the other.
    found: tuple[int, str] | None = None
    for point, kind in mounts:
        if path.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = len(point.parts), kind
    return None if found is None else found[1]


def _mounts() -> Iterator[tuple[Path, str]]:
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return  # not Linux
    for line in lines:
        place, _, device = line.partition(" - ")
        point = place.split(" ")[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        yield Path(point), device.split(" ")[0]

"""A SQLite file lies on a disk of this machine, or Campana does not start on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from campana.errors import SettingsError
from campana.store import filesystems, sqlite

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:31 / {folder}/far rw,relatime shared:2 master:7 - nfs4 server:/export rw,vers=4.2
31 30 8:2 / {folder}/far/near rw - xfs /dev/sdb rw
32 21 0:40 / {folder}/two\\040words rw - cifs //host/share rw
33 21 0:41 / {folder}/twice rw - nfs server:/old rw
34 33 8:3 / {folder}/twice rw - btrfs /dev/sdc rw
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS.format(folder=tmp_path))
    monkeypatch.setattr(filesystems, "MOUNTS", table)
    return tmp_path


@pytest.mark.parametrize(("place", "kind"), [("far/x.db", "nfs4"), ("far/deeper/x.db", "nfs4"), ("two words/x.db", "cifs")])
def test_a_file_on_a_network_file_system_is_refused_with_what_to_do(folder: Path, place: str, kind: str) -> None:
    with pytest.raises(SettingsError, match=rf"network file system \({kind}\).*local disk.*DATABASE_URL"):
        sqlite.connect(f"sqlite:///{folder / place}")


@pytest.mark.parametrize("place", ["x.db", "farther/x.db", "far/near/x.db", "twice/x.db"])
def test_a_file_on_a_disk_of_this_machine_is_taken(folder: Path, place: str) -> None:
    sqlite.connect(f"sqlite:///{folder / place}").dispose()


def test_a_link_is_judged_by_where_it_leads(folder: Path) -> None:
    (folder / "far").mkdir()
    (folder / "near.db").symlink_to(folder / "far" / "x.db")
    with pytest.raises(SettingsError, match="nfs4"):
        sqlite.connect(f"sqlite:///{folder / 'near.db'}")


def test_where_nobody_can_tell_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "nothing")
    sqlite.connect(f"sqlite:///{tmp_path / 'x.db'}").dispose()

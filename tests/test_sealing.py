"""Sealing: what is sealed for one place opens there, under each key that is known, and nowhere else."""

from __future__ import annotations

from uuid import UUID

import pytest

from campana import sealing, world
from campana.sealing import Sealed, Sealer

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b"the secret itself, 32 bytes long"
TENANT, PROJECT = UUID(int=1), UUID(int=2)
PLACE = sealing.of_project(TENANT, PROJECT)
KEPT_ID = "ad045e2743cd4a85"
KEPT = "6f451bf86e223256dd1c7ada8f23d81492f0d368104516d01b675afeb8b0e0c5031e53bff20e7ee5e91691aacc333bbed1c46f5b0e95c037ba1a7d59"


def sealer(*materials: bytes) -> Sealer:
    return Sealer(world.SystemChance(), materials)


def test_what_is_sealed_opens_at_its_place_and_shows_nothing_of_itself() -> None:
    sealed = sealer(NEW).seal(SECRET, PLACE)
    assert sealer(NEW).open(sealed, PLACE) == SECRET
    assert SECRET[:8] not in sealed.data
    assert not {NEW, NEW.hex().encode()} & {sealed.key_id.encode(), sealed.data}


@pytest.mark.parametrize(
    "place",
    [
        sealing.of_project(TENANT, UUID(int=3)),
        sealing.of_project(UUID(int=3), PROJECT),
        sealing.of_project(PROJECT, TENANT),
        PLACE + b" ",
        b"",
    ],
)
def test_copied_to_another_place_it_does_not_open(place: bytes) -> None:
    one = sealer(NEW)
    assert one.open(one.seal(SECRET, PLACE), place) is None


def test_a_changed_byte_is_seen_wherever_it_is() -> None:
    one = sealer(NEW)
    sealed = one.seal(SECRET, PLACE)
    for at in range(len(sealed.data)):
        changed = bytes([*sealed.data[:at], sealed.data[at] ^ 1, *sealed.data[at + 1 :]])
        assert one.open(Sealed(key_id=sealed.key_id, data=changed), PLACE) is None
    for length in range(len(sealed.data)):
        assert one.open(Sealed(key_id=sealed.key_id, data=sealed.data[:length]), PLACE) is None


def test_the_same_secret_sealed_twice_is_not_the_same() -> None:
    one = sealer(NEW)
    assert len({one.seal(SECRET, PLACE).data for _ in range(100)}) == 100


def test_with_the_older_key_beside_the_newer_one_both_open_and_new_ones_are_under_the_newer() -> None:
    before, during, after = sealer(OLD), sealer(NEW, OLD), sealer(NEW)
    old = before.seal(SECRET, PLACE)
    assert during.open(old, PLACE) == SECRET
    assert after.open(old, PLACE) is None
    new = during.seal(SECRET, PLACE)
    assert new.key_id == during.newest == after.newest != before.newest
    assert after.open(new, PLACE) == SECRET
    assert before.open(new, PLACE) is None


def test_a_key_that_is_named_as_another_opens_nothing() -> None:
    old = sealer(OLD).seal(SECRET, PLACE)
    renamed = Sealed(key_id=sealer(NEW).newest, data=old.data)
    assert sealer(NEW, OLD).open(renamed, PLACE) is None


def test_no_text_of_a_sealer_shows_a_key() -> None:
    said = repr(sealer(NEW)) + str(vars(sealer(NEW)))
    assert "nnn" not in said


def test_what_was_sealed_by_an_earlier_version_still_opens() -> None:
    """A change of the format, or of a word in a derivation, would lose every secret that is kept."""
    kept = Sealed(key_id=KEPT_ID, data=bytes.fromhex(KEPT))
    assert sealer(NEW).newest == KEPT_ID
    assert sealer(NEW).open(kept, PLACE) == SECRET


def test_what_is_sealed_once_opens_under_its_key_alone() -> None:
    kept = sealing.seal_once(OLD, b"said")
    assert sealing.open_once(OLD, kept) == b"said"
    assert sealing.open_once(NEW, kept) is None
    assert sealing.open_once(OLD, kept[:-1]) is None
    assert b"said" not in kept

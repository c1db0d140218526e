"""Secrets at rest: sealed by AES-GCM under a key of the installation, and bound to the place where they are kept.

What was sealed for one place does not open at another, so a row that is copied to another project is of no use there. New
secrets are sealed under the newest key; older keys still open what they sealed, until that is sealed anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from campana.world import Chance

_NONCE = 12
_ID = 8
_KEY = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A secret as it is kept, and which key opens it."""

    key_id: str
    data: bytes


def of_project(tenant_id: UUID, project_id: UUID) -> bytes:
    """Return the place of a project's signing secrets."""
    return b"webhook-secret|" + tenant_id.bytes + project_id.bytes


class Sealer:
    """Seals under the newest key, and opens what any of its keys has sealed."""

    def __init__(self, chance: Chance, materials: Sequence[bytes]) -> None:
        """Derive a key from each, the newest first; each goes by a fingerprint, so that hosts need not agree on names."""
        self._chance = chance
        self._keys = {_fingerprint(material): AESGCM(_derived(material, b"campana seal", _KEY)) for material in materials}
        self.newest = next(iter(self._keys))

    def seal(self, secret: bytes, place: bytes) -> Sealed:
        """Return the secret so that it opens at this place alone."""
        nonce = self._chance.token(_NONCE)
        return Sealed(key_id=self.newest, data=nonce + self._keys[self.newest].encrypt(nonce, secret, place))

    def open(self, sealed: Sealed, place: bytes) -> bytes | None:
        """Return the secret; None where its key is not here, or it was sealed for another place, or was changed."""
        key = self._keys.get(sealed.key_id)
        if key is None or len(sealed.data) <= _NONCE:
            return None
        try:
            return key.decrypt(sealed.data[:_NONCE], sealed.data[_NONCE:], place)
        except InvalidTag:
            return None


def seal_once(key: bytes, said: bytes) -> bytes:
    """Return what was said so that this key opens it; a key seals one text in its life, so the nonce need not differ."""
    return AESGCM(key).encrypt(bytes(_NONCE), said, None)


def open_once(key: bytes, kept: bytes) -> bytes | None:
    """Return what was said; None where it was kept under another key, or was changed."""
    try:
        return AESGCM(key).decrypt(bytes(_NONCE), kept, None)
    except InvalidTag:
        return None


def _fingerprint(material: bytes) -> str:
    return _derived(material, b"campana key id", _ID).hex()


def _derived(material: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(material)

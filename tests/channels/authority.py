"""A certificate authority for tests, made anew each time."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates that only its own root vouches for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "campana test root")])
        self._root = self._signed(self._name, self._key, self._name, self._key, authority=True)

    def trusting(self) -> ssl.SSLContext:
        """Return a client's context that knows this root and no other."""
        context = ssl.create_default_context(cadata=self.root_pem())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def root_pem(self) -> str:
        """Return the root's own certificate."""
        return self._root.public_bytes(serialization.Encoding.PEM).decode()

    def server(self, name: str, *, expired: bool = False, self_signed: bool = False) -> ssl.SSLContext:
        """Return a server's context with a certificate for this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer, signer = (subject, key) if self_signed else (self._name, self._key)
        certificate = self._signed(subject, key, issuer, signer, names=(name,), expired=expired)
        path = self.folder / f"{name}-{expired}-{self_signed}.pem"
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Name,
        signer: ec.EllipticCurvePrivateKey,
        *,
        names: tuple[str, ...] = (),
        authority: bool = False,
        expired: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        end = now - timedelta(days=1) if expired else now + timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        if names:
            alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        return builder.sign(signer, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)

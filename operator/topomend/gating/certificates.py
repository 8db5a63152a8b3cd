"""Issues and renews the webhook's certificate, by an authority of its own that the API server trusts for it alone.

Owns what is issued and when. Leaves the Secret to ``key_pairs`` and ``installer``. The library takes 8 MiB, so it is
imported only where there is a webhook.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from topomend.gating.key_pairs import CA_KEY, KeyPairs, Unusable

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 365
RENEWED_AFTER = 2 / 3
"""The part of its life after which something is issued anew."""

_CLOCKS_DIFFER = dt.timedelta(hours=1)


def renewed(known: KeyPairs | None, hosts: Sequence[str], now: dt.datetime) -> KeyPairs | None:
    """The key pairs that must take the place of ``known`` at ``now``; None if it can stay. Raises Unusable.

    ``hosts`` are the names and addresses by which the API server connects. The authority's certificate of before stays
    trusted: a replica may still use a certificate that it signed.
    """
    if known is None:
        return _issued(*_authority(now), hosts, now)
    try:
        trusted = x509.load_pem_x509_certificates(known.authority)
        certificate = x509.load_pem_x509_certificate(known.certificate)
        if not known.authority_key:
            return None
        key = serialization.load_pem_private_key(known.authority_key, None)
    except (ValueError, TypeError) as error:
        raise Unusable(f"not a certificate or key in PEM: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Unusable(f"{CA_KEY} is no key of an elliptic curve")
    authority = trusted[0]
    if _is_due(authority, now):
        fresh, fresh_key = _authority(now)
        return _issued(
            fresh, fresh_key, hosts, now, before=[root for root in trusted if now < root.not_valid_after_utc]
        )
    if _is_due(certificate, now) or _names(certificate) != set(hosts):
        return _issued(authority, key, hosts, now, before=trusted[1:])
    return None


def expiry(known: KeyPairs) -> float:
    """When the certificate or the authority that issued it ends, whichever is first, in Unix time.

    ``renewed`` has read both. A renewal shows at the next call, once the Secret has it.
    """
    pair = (x509.load_pem_x509_certificates(known.authority)[0], x509.load_pem_x509_certificate(known.certificate))
    return min(certificate.not_valid_after_utc.timestamp() for certificate in pair)


def _is_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now > certificate.not_valid_before_utc + RENEWED_AFTER * life


def _names(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def _authority(now: dt.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "topomend admission webhook")])
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key, now, AUTHORITY_DAYS).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key


def _issued(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
    now: dt.datetime,
    before: Sequence[x509.Certificate] = (),
) -> KeyPairs:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "topomend")])
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = _builder(subject, authority.subject, key, now, CERTIFICATE_DAYS)
    certificate = (
        builder.add_extension(names, critical=False)
        .add_extension(usage, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    trusted = b"".join(root.public_bytes(serialization.Encoding.PEM) for root in (authority, *before))
    return KeyPairs(trusted, _pem(authority_key), certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

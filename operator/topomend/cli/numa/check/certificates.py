"""Read until when a webhook's authority and its certificate are valid, and whether the one has signed the other."""

from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from topomend.check.facts import Authority
from topomend.check.finding import Subject
from topomend.gating.key_pairs import KeyPairs, Unusable
from topomend.wire.document import Document

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


def authority_of(configuration: Any) -> Iterator[Authority]:
    """What the API server trusts the first webhook of a configuration by; nothing of one without webhooks.

    Of several certificates the one counts that is valid longest. Raises MalformedObject.
    """
    document = Document(configuration)
    subject = Subject("MutatingWebhookConfiguration", document["metadata"]["name"].text())
    for webhook in document["webhooks"]:
        bundle = webhook["clientConfig"]["caBundle"]
        if not bundle.absent:
            yield _until(subject, bundle.text())
        return


def _until(subject: Subject, bundle: str) -> Authority:
    try:
        certificates = _certificates(b64decode(bundle, validate=True))
    except ValueError as error:
        return Authority(subject, fault=f"not a certificate in PEM: {error}")
    return Authority(subject, _longest(certificates))


def certificate_of(secret: Any, subject: Subject) -> Authority | None:
    """The certificate in the webhook's Secret; None where none was issued yet."""
    try:
        pairs = KeyPairs.of_secret(secret.get("data") or {})
        if pairs is None:
            return None
        certificate, *chain = _certificates(pairs.certificate)
        trusted = [*_certificates(pairs.authority), *chain]
    except Unusable as error:
        return Authority(subject, fault=str(error))
    except ValueError as error:
        return Authority(subject, fault=f"not a certificate in PEM: {error}")
    if not any(_has_signed(authority, certificate) for authority in trusted):
        return Authority(subject, fault="it is not signed by the authority in ca.crt")
    return Authority(subject, certificate.not_valid_after_utc)


def _certificates(pem: bytes) -> "list[Certificate]":
    """Raises ValueError."""
    from cryptography import x509  # noqa: PLC0415  8 MiB, and --help needs it not

    return x509.load_pem_x509_certificates(pem)


def _longest(certificates: "list[Certificate]") -> datetime:
    return max(certificate.not_valid_after_utc for certificate in certificates)


def _has_signed(authority: "Certificate", certificate: "Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True

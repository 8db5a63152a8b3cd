"""Verify a cluster's certificates as strictly as Go's TLS does, which kubectl and every kubelet use."""

import ssl
from pathlib import Path


def as_clusters_are(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context without OpenSSL's strict mode, which Python enables by default since 3.13.

    Strict mode refuses authorities that lack extensions of RFC 5280. Amazon EKS creates its authorities without a key
    identifier, and MicroK8s created its own without a key usage (kubernetes-client/python#2394,
    canonical/microk8s#5537). Chain, dates and names are still verified.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def trusting(file: Path | None = None, *, pem: str | None = None) -> ssl.SSLContext:
    """A context that trusts the authorities in ``file`` or in ``pem``; without either, the system's.

    Raises OSError where the file cannot be read or holds no certificate, ssl.SSLError where ``pem`` holds none.
    """
    return as_clusters_are(ssl.create_default_context(cafile=file, cadata=pem))


def trusting_anybody() -> ssl.SSLContext:
    """A context that verifies nothing: for a server that gets and says nothing that must stay between the two."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

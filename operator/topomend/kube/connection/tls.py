"""TLS as clusters have it: verified as Go's TLS verifies, which kubectl and every kubelet use, by what is true now.

Owns every context of a client. Leaves to ``access`` which authorities, certificates and names a cluster has.
"""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self


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
    """A context that verifies nothing: for a server that gets and says nothing that must stay between the two, or that
    a user told not to verify."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_name_mismatch(error: ssl.SSLCertVerificationError) -> bool:
    """Whether the certificate is for another name or address than the server's (openssl/x509_vfy.h)."""
    return error.verify_code in (_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH)


_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH = 62, 64


def show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have new connections show a certificate, as a client or as a server; both are PEM. Raises ssl.SSLError.

    The ssl module reads them from files only, so these files are in memory.
    """
    with _in_memory(certificate) as first, _in_memory(key) as second:
        context.load_cert_chain(first, second, password="")


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file with this content that is on no disk."""
    with os.fdopen(os.memfd_create("certificate"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


class MadeAnew(ssl.SSLContext):
    """A context for libraries that keep one for ever: each connection is made by another, which ``make`` returns.

    Certificates are replaced in place. ``name`` is the name that the server's certificate must carry, empty for the
    host's. Only connections of asyncio come to it.
    """

    _make: Callable[[], ssl.SSLContext]
    _name: str

    def __new__(cls, make: Callable[[], ssl.SSLContext], name: str) -> Self:
        """OpenSSL's part."""
        made = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        made._make, made._name = make, name
        return made

    def __init__(self, make: Callable[[], ssl.SSLContext], name: str) -> None:
        del make, name

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: Any = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """The TLS of a new connection."""
        del server_side, session
        return self._make().wrap_bio(incoming, outgoing, server_hostname=self._name or server_hostname)

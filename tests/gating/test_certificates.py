"""The webhook's certificate: issued once, renewed in time, never at the price of clients that trust the one before."""

import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from topomend.gating.certificates import AUTHORITY_DAYS, CERTIFICATE_DAYS, expiry, renewed
from topomend.gating.key_pairs import KeyPairs, Unusable

NOW = datetime.now(UTC)
HOSTS = ("topomend-gating.topomend-system.svc", "127.0.0.1", "::1")


def issued(now: datetime = NOW) -> KeyPairs:
    made = renewed(None, HOSTS, now)
    assert made is not None
    return made


def is_trusted(authority: bytes, shown: KeyPairs, host: str, folder: Path) -> bool:
    """Whether a client that trusts ``authority`` accepts the certificate of ``shown`` for ``host``."""
    pair = folder / "pair.pem"
    pair.write_bytes(shown.key + shown.certificate)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pair)
    client_side = ssl.create_default_context(cadata=authority.decode())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = threading.Thread(target=_accept, args=(server_side, theirs))
        server.start()
        try:
            with client_side.wrap_socket(ours, server_hostname=host):
                return True
        except ssl.SSLCertVerificationError:
            return False
        finally:
            ours.close()
            server.join()


def _accept(context: ssl.SSLContext, connection: socket.socket) -> None:
    try:
        with context.wrap_socket(connection, server_side=True) as accepted:
            accepted.recv(1)
    except OSError:
        pass  # the client did not trust it


@pytest.mark.parametrize("host", HOSTS)
def test_clients_trust_the_certificate_for_its_hosts_alone(host: str, tmp_path: Path) -> None:
    made = issued()
    assert is_trusted(made.authority, made, host, tmp_path)
    assert not is_trusted(made.authority, made, "elsewhere.svc", tmp_path)
    assert not is_trusted(issued().authority, made, host, tmp_path)


def test_a_certificate_is_renewed_in_time_by_the_same_authority() -> None:
    made = issued()
    assert renewed(made, HOSTS, NOW + timedelta(days=CERTIFICATE_DAYS / 2)) is None
    later = renewed(made, HOSTS, NOW + timedelta(days=CERTIFICATE_DAYS * 0.7))
    assert later is not None
    assert (later.authority, later.authority_key) == (made.authority, made.authority_key)
    assert later.certificate != made.certificate


def test_the_end_is_that_of_the_certificate_or_of_an_authority_that_ends_first() -> None:
    made = issued()
    assert expiry(made) == int((NOW + timedelta(days=CERTIFICATE_DAYS)).timestamp())
    near_its_end = NOW - timedelta(days=AUTHORITY_DAYS - 10)
    old = replace(made, authority=issued(near_its_end).authority)
    assert expiry(old) == int((NOW + timedelta(days=10)).timestamp())


def test_a_renewed_authority_leaves_the_one_before_trusted(tmp_path: Path) -> None:
    due = timedelta(days=AUTHORITY_DAYS * 2 / 3)
    old = renewed(issued(NOW - due - timedelta(days=1)), HOSTS, NOW - timedelta(days=2))
    assert old is not None
    current = renewed(old, HOSTS, NOW)
    assert current is not None
    assert current.authority_key != old.authority_key
    assert is_trusted(current.authority, current, HOSTS[0], tmp_path)
    assert is_trusted(current.authority, old, HOSTS[0], tmp_path)
    assert not is_trusted(old.authority, current, HOSTS[0], tmp_path)


def test_other_hosts_need_another_certificate() -> None:
    made = issued()
    assert renewed(made, ("127.0.0.1",), NOW) is not None
    assert renewed(made, tuple(reversed(HOSTS)), NOW) is None


def test_a_secret_of_cert_managers_is_used_and_left_alone() -> None:
    """It has no key of the authority."""
    data = issued(NOW - timedelta(days=AUTHORITY_DAYS)).as_secret()
    del data["ca.key"]
    known = KeyPairs.of_secret(data)
    assert known is not None
    assert renewed(known, HOSTS, NOW) is None


@pytest.mark.parametrize(
    "data",
    [{"tls.crt": "eA=="}, {"ca.crt": "?", "tls.crt": "eA==", "tls.key": "eA=="}],
    ids=["incomplete", "not in base64"],
)
def test_a_secret_with_something_else_is_unusable(data: dict[str, str]) -> None:
    with pytest.raises(Unusable, match="neither empty nor with"):
        KeyPairs.of_secret(data)
    assert KeyPairs.of_secret({}) is None


def test_something_else_in_place_of_certificates_is_unusable() -> None:
    with pytest.raises(Unusable, match="not a certificate or key in PEM"):
        renewed(KeyPairs(b"x", b"x", b"x", b"x"), HOSTS, NOW)
    assert KeyPairs.of_secret(issued().as_secret()) is not None

"""Until when a webhook is trusted, and what makes a certificate none."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from topomend.check.finding import Subject
from topomend.cli.numa.check.certificates import authority_of, certificate_of
from topomend.gating.certificates import CERTIFICATE_DAYS, renewed
from topomend.gating.key_pairs import KeyPairs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = Subject("Secret", "topomend-gating", "topomend-system")


def pairs() -> KeyPairs:
    issued = renewed(None, ["h"], NOW)
    assert issued
    return issued


def configuration(bundle: str | None) -> dict[str, Any]:
    webhooks = [] if bundle is None else [{"clientConfig": {"caBundle": bundle}}]
    return {"metadata": {"name": "topomend-steer"}, "webhooks": webhooks}


def test_the_authority_that_is_valid_longest_counts() -> None:
    later = renewed(None, ["h"], NOW + timedelta(days=9))
    assert later
    bundle = base64.b64encode(pairs().authority + later.authority).decode()
    (authority,) = authority_of(configuration(bundle))
    assert authority.until == NOW + timedelta(days=9 + 3650)


def test_a_configuration_without_webhooks_has_no_authority() -> None:
    assert list(authority_of(configuration(None))) == []


def test_a_bundle_that_is_no_certificate_says_so() -> None:
    for bundle in ("!", base64.b64encode(b"no pem").decode()):
        (authority,) = authority_of(configuration(bundle))
        assert authority.until is None
        assert authority.fault.startswith("not a certificate in PEM: ")


def test_a_certificate_ends_when_its_authority_said() -> None:
    found = certificate_of({"data": pairs().as_secret()}, SECRET)
    assert found
    assert (found.until, found.fault) == (NOW + timedelta(days=CERTIFICATE_DAYS), "")


def test_a_certificate_of_another_authority_is_named() -> None:
    other = pairs().as_secret()
    found = certificate_of({"data": pairs().as_secret() | {"ca.crt": other["ca.crt"]}}, SECRET)
    assert found
    assert found.fault == "it is not signed by the authority in ca.crt"


def test_an_empty_secret_has_no_certificate_and_a_wrong_one_says_what_it_lacks() -> None:
    assert certificate_of({}, SECRET) is None
    found = certificate_of({"data": {"tls.crt": "eA=="}}, SECRET)
    assert found
    assert "neither empty nor with ca.crt" in found.fault

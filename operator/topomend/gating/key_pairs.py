"""The key pairs of the webhook and of its authority, in a Secret that all replicas share.

cert-manager may fill the Secret instead: it writes no key of the authority, so nothing is renewed here.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass

CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
"""The Secret's fields, as cert-manager names them."""


class Unusable(ValueError):
    """The Secret has no usable certificate: ``str()`` says which field and why."""


@dataclass(frozen=True, slots=True)
class KeyPairs:
    """The Secret's contents, in PEM. ``authority`` may hold several certificates; ``authority_key`` may be empty."""

    authority: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def of_secret(cls, data: Mapping[str, str]) -> "KeyPairs | None":
        """Those of a Secret's ``data``; None of an empty one. Raises Unusable."""
        if not data:
            return None
        try:
            fields = {field: b64decode(text, validate=True) for field, text in data.items()}
            return cls(fields[CA_CERTIFICATE], fields.get(CA_KEY, b""), fields[CERTIFICATE], fields[KEY])
        except (KeyError, ValueError) as error:
            raise Unusable(f"{error}: neither empty nor with {CA_CERTIFICATE}, {CERTIFICATE} and {KEY}") from error

    def as_secret(self) -> dict[str, str]:
        """The ``data`` of a Secret."""
        fields = {
            CA_CERTIFICATE: self.authority,
            CA_KEY: self.authority_key,
            CERTIFICATE: self.certificate,
            KEY: self.key,
        }
        return {field: b64encode(content).decode() for field, content in fields.items()}

"""Keeps in force what gates and stamps new pods: policies where the API server serves their kind, else the webhook.

The manifests install four webhook configurations without webhooks. Each stands for one definition: without it, neither
a policy nor a webhook is installed, and what was installed is deleted with it (it owns the policy and the binding). The
leading operator applies the policies, or writes the webhooks; every operator serves the webhook while one is written.

API servers of two releases may serve one cluster during an upgrade, and each answers for itself. So the webhooks remain
until the policies were served for SETTLED_SECONDS without a break. A pod that a policy has gated meets no webhook:
policies come first, and the webhook's conditions exclude gated pods.
"""

import datetime as dt
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from topomend.gating.definitions import ADMISSION, BRAKE, NAMES, Installation, policy_and_binding, webhook
from topomend.gating.key_pairs import CA_CERTIFICATE, KeyPairs, Unusable
from topomend.gating.parameter_watch import ParameterWatch
from topomend.gating.webhook import Webhook
from topomend.kube.client import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    SECRETS,
    Client,
    Resource,
)
from topomend.kube.errors import Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound, NotPermitted

SETTLED_SECONDS = 600.0
REPEAT_SECONDS = 60.0
"""How often what was applied is applied again, in case somebody changed it."""

LINGER_SECONDS = 5.0
"""How long a webhook still answers once its operator stops: API servers and nodes learn of its end that late."""

NO_WEBHOOK = (
    "the API server has no MutatingAdmissionPolicy, and --webhook-address is not set, so new pods cannot be gated"
)

_VERSIONS = ("v1", "v1beta1")
_KINDS = (MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS)

_log = logging.getLogger(__name__)


class Missing(Exception):
    """Something that the manifests install is not there."""


class Installer:
    """Keeps one installation's gating in force. ``ensure`` is called by one thread, again and again.

    ``address`` is where the webhook listens, empty for nowhere. ``url`` is how the API server reaches it, empty for the
    installation's Service. Only while ``leads`` returns True is anything written.
    """

    def __init__(
        self, client: Client, installation: Installation, address: str, url: str, leads: Callable[[], bool]
    ) -> None:
        self._client, self._installation, self._leads = client, installation, leads
        self._address, self._url = address, url.rstrip("/")
        self._parameters = ParameterWatch(client, installation.namespace)
        self._webhook: Webhook | None = None
        self._shown: KeyPairs | None = None
        self._served_since: float | None = None
        self._applied: object = None
        self._applied_at = 0.0
        self._problem: str | None = None
        self._version: str | None = None

    @property
    def is_ready(self) -> bool:
        """Whether this operator does its part: it has looked, and serves the webhook if there must be one.

        One that says why it cannot, such as for want of a right, is ready for all the rest.
        """
        needs_none = bool(self._version or not self._address or self._problem)
        return self._version is not None and (needs_none or self._webhook is not None)

    def why_not_gating(self) -> str:
        """Why new pods cannot be gated; empty if they can. Asks the API server where that is not known yet.

        Raises APIError.
        """
        if self._version is None:
            self._version = self._served()
        if self._version:
            return ""
        if not self._address:
            return NO_WEBHOOK
        return self._problem or ""

    def ensure(self) -> None:
        """Apply what is to be in force, renew the certificate, and serve. Raises APIError if no answer arrives."""
        try:
            self._ensure()
        except Missing as error:
            self._complain(str(error), logging.INFO)  # somebody switched it off, or is draining
        except (Forbidden, Invalid, MethodNotAllowed, NotFound, Unusable, OSError) as error:
            self._complain(str(error))
        except (Conflict, NotPermitted):
            pass  # another operator was faster: see at the next call
        else:
            self._problem = ""

    def close(self) -> None:
        """Answer no more, once no API server asks."""
        if self._webhook is not None:
            self._webhook.close(linger=0.0 if self._url else LINGER_SECONDS)
        self._parameters.stop()

    def _ensure(self) -> None:
        self._version = self._served()
        now = time.monotonic()
        self._served_since = (self._served_since or now) if self._version else None
        is_settled = self._served_since is not None and now - self._served_since > SETTLED_SECONDS
        configurations = self._configurations()
        wants_webhooks = not self._version or (
            not is_settled and any(content.get("webhooks") for content in configurations.values())
        )
        trusted = None
        if wants_webhooks and self._address:
            known, renewed_pairs = self._key_pairs()
            trusted = renewed_pairs or known
            # Not yet the renewed ones: API servers may not trust a new authority so soon. Next time they are known.
            self._serve(known or renewed_pairs)
        if self._leads():
            self._apply(configurations, trusted)
        if not self._version and BRAKE not in configurations:
            raise Missing(
                f"MutatingWebhookConfiguration {self._installation.name(BRAKE)} is missing; apply deploy/ again"
            )

    def _served(self) -> str:
        """The newest version in which the API server serves the policies; empty if it does not."""
        return next(
            (
                version
                for version in _VERSIONS
                if self._client.serves(_in_version(MUTATING_ADMISSION_POLICIES, version))
            ),
            "",
        )

    def _configurations(self) -> dict[str, dict[str, Any]]:
        """The webhook configurations that exist, by definition."""
        configurations = {}
        for definition in NAMES:
            try:
                configurations[definition] = self._client.get(MUTATING_WEBHOOKS, self._installation.name(definition))
            except NotFound:
                continue
        return configurations

    def _apply(self, configurations: dict[str, dict[str, Any]], trusted: KeyPairs | None) -> None:
        uids = {definition: content["metadata"]["uid"] for definition, content in configurations.items()}
        wanted = (self._version, uids, trusted and trusted.authority)
        if wanted == self._applied and time.monotonic() - self._applied_at < REPEAT_SECONDS:
            return
        for definition, uid in uids.items():
            if self._version:
                self._apply_policy(definition, uid, self._version)
            if trusted is not None or self._version:
                self._apply_webhook(definition, trusted)
        if wanted != self._applied:
            means = f"policies ({self._version})" if self._version else "the webhook"
            _log.info("applied for new pods, as %s: %s", means, ", ".join(uids) or "nothing")
        self._applied, self._applied_at = wanted, time.monotonic()

    def _apply_policy(self, definition: str, owner: str, version: str) -> None:
        name = self._installation.name(definition)
        reference = {"apiVersion": MUTATING_WEBHOOKS.api_version, "kind": "MutatingWebhookConfiguration"}
        for kind, content in zip(_KINDS, policy_and_binding(self._installation, definition, version), strict=True):
            content["metadata"]["ownerReferences"] = [{**reference, "name": name, "uid": owner}]
            self._client.apply(_in_version(kind, version), name, content)

    def _apply_webhook(self, definition: str, key_pairs: KeyPairs | None) -> None:
        """Write the definition's webhook; without ``key_pairs`` there is none any more."""
        name = self._installation.name(definition)
        content: dict[str, Any] = {
            "apiVersion": MUTATING_WEBHOOKS.api_version,
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
        }
        if key_pairs is not None:
            content["webhooks"] = [webhook(self._installation, definition, self._client_config(definition, key_pairs))]
        self._client.apply(MUTATING_WEBHOOKS, name, content)

    def _client_config(self, definition: str, key_pairs: KeyPairs) -> dict[str, Any]:
        bundle = {"caBundle": key_pairs.as_secret()[CA_CERTIFICATE]}
        if self._url:
            return {"url": f"{self._url}/{definition}", **bundle}
        namespace, name = self._installation.namespace, self._installation.service
        return {"service": {"namespace": namespace, "name": name, "path": f"/{definition}", "port": 443}, **bundle}

    def _key_pairs(self) -> tuple[KeyPairs | None, KeyPairs | None]:
        """Those of the Secret, and those that the leading operator has just renewed them with."""
        from topomend.gating.certificates import renewed  # noqa: PLC0415  8 MiB, and most operators have no webhook

        name, namespace = self._installation.service, self._installation.namespace
        secret = self._client.get(SECRETS, name, namespace)
        known = KeyPairs.of_secret(secret.get("data") or {})
        fresh = renewed(known, self._hosts(), dt.datetime.now(dt.UTC)) if self._leads() else None
        if fresh is not None:
            version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
            self._client.merge(SECRETS, name, {"metadata": version, "data": fresh.as_secret()}, namespace)
            _log.info("Secret %s/%s has a new certificate", namespace, name)
        return known, fresh

    def _hosts(self) -> list[str]:
        if self._url:
            return [urlsplit(self._url).hostname or ""]
        return [f"{self._installation.service}.{self._installation.namespace}.svc"]

    def _serve(self, key_pairs: KeyPairs | None) -> None:
        if key_pairs is None:
            return  # the leading operator has not issued any yet
        if self._webhook is None:
            self._parameters.start()
            self._webhook = Webhook(self._address, key_pairs, self._parameters.parameter)
            _log.info("the admission webhook listens at %s", self._address)
        elif key_pairs != self._shown:
            self._webhook.use(key_pairs)
        self._shown = key_pairs

    def _complain(self, problem: str, level: int = logging.WARNING) -> None:
        if problem != self._problem:
            _log.log(level, "new pods are not all gated: %s", problem)
        self._problem = problem


def _in_version(kind: Resource, version: str) -> Resource:
    return replace(kind, api_version=f"{ADMISSION}/{version}")

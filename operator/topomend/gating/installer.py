"""Keeps in force what gates and stamps new pods: policies where the API server serves their kind, and the webhook.

The manifests install four webhook configurations without webhooks. Each stands for one definition: without it, neither
a policy nor a webhook is installed, and what was installed is deleted with it (it owns the policy and the binding). The
leading operator applies the policies and writes the webhooks; every operator serves the webhook.

Where there are no policies, each definition has a webhook. Where there are, an API server that has just started may
evaluate none that has a parameter for 30 s (k8s.io/apiserver pkg/server/options/admission.go: it looks their kinds up
that seldom). So steering keeps its webhook, and the brake has one while it lists a controller. A pod that a policy has
gated meets no webhook: policies come first, and the webhook's conditions exclude gated pods.

API servers of two releases may serve one cluster during an upgrade, and each answers for itself. So a webhook remains
for SETTLED_SECONDS after the last time that it was needed.
"""

import datetime as dt
import logging
import time
from base64 import b64encode
from collections.abc import Callable, Set
from typing import Any
from urllib.parse import urlsplit

from topomend.gating.definitions import ADMISSION, BRAKE, NAMES, STEER, Installation, policy_and_binding, webhook
from topomend.gating.key_pairs import KeyPairs, Unusable
from topomend.gating.known_parameters import KnownParameters
from topomend.gating.opted_out import OptedOutNamespaces
from topomend.gating.webhook import Webhook
from topomend.kube.client import Client
from topomend.kube.errors import Conflict, Forbidden, Invalid, MethodNotAllowed, NotFound, NotPermitted
from topomend.kube.resources import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    SECRETS,
    Resource,
)

SETTLED_SECONDS = 600.0
REPEAT_SECONDS = 60.0
"""How often what was applied is applied again, in case somebody changed it."""

LINGER_SECONDS = 5.0
"""How long a webhook still answers once its operator stops: API servers and nodes learn of its end that late."""

NO_WEBHOOK = (
    "the API server has no MutatingAdmissionPolicy, and --webhook-address is not set, so new pods cannot be gated"
)

_VERSIONS = ("v1", "v1beta1")
POLICY_KINDS = (MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS)

_log = logging.getLogger(__name__)


class Missing(Exception):
    """Something that the manifests install is not there."""


class Installer:
    """Keeps one installation's gating in force. ``ensure`` is called by one thread, again and again.

    ``address`` is where the webhook listens, empty for nowhere. ``url`` is how the API server reaches it, empty for the
    installation's Service. Only while ``leads`` returns True is anything written. ``parameters`` are those by which
    the webhook answers; ``watch`` is called once it needs them kept up to date. ``took`` gets the seconds of each
    answer.
    """

    def __init__(  # noqa: PLR0913  where it listens, where it is reached
        self,
        client: Client,
        installation: Installation,
        address: str,
        url: str,
        leads: Callable[[], bool],
        *,
        parameters: KnownParameters,
        watch: Callable[[], None],
        took: Callable[[float], None],
    ) -> None:
        self._client, self._installation, self._leads = client, installation, leads
        self._address, self._url = address, url.rstrip("/")
        self._parameters, self._watch_parameters = parameters, watch
        self._opted_out, self._took = OptedOutNamespaces(client), took
        self._webhook: Webhook | None = None
        self._shown: KeyPairs | None = None
        self._authority: bytes | None = None
        self._webhook_needed: dict[str, float] = {}
        self._applied: object = None
        self._applied_at = 0.0
        self._problem: str | None = None
        self._version: str | None = None
        self.certificate_expiry = 0.0
        """When the certificate or its authority ends, in Unix time, as this operator read it while it led; 0 before."""

    @property
    def is_ready(self) -> bool:
        """Whether this operator does its part: it has looked, and serves the webhook if there must be one.

        One that says why it cannot, such as for want of a right, is ready for all the rest. Beside policies none waits
        for its webhook: until the operators of the release before are gone, nobody may issue a certificate.
        """
        is_served = bool(self._version or not self._address or self._problem or self._webhook)
        return self._version is not None and is_served

    def why_not_gating(self) -> str:
        """Why new pods cannot be gated; empty if they can. Asks the API server where that is not known yet.

        Raises APIError.
        """
        if self._version is None:
            self._version = served_version(self._client)
        if self._version:
            return ""
        if not self._address:
            return NO_WEBHOOK
        return self._problem or ""

    def ensure(self) -> None:
        """Renew the certificate, serve, and apply what is to be in force. Raises APIError if no answer arrives."""
        self._version = served_version(self._client)
        failed: Exception | None = None
        # Each without the other: policies need no certificate, and serving what is written needs no right to write.
        for step in (self._serve, self._install):
            try:
                step()
            except (Missing, Forbidden, Invalid, MethodNotAllowed, NotFound, Unusable, OSError) as error:
                failed = failed or error
            except (Conflict, NotPermitted):
                pass  # another operator, or somebody who deletes, was faster: see at the next call
        self._report(failed)

    def close(self) -> None:
        """Answer no more, once no API server asks."""
        if self._webhook is not None:
            self._webhook.close(linger=0.0 if self._url else LINGER_SECONDS)

    def _install(self) -> None:
        configurations = self._configurations()
        if self._leads():
            self._apply(configurations, self._having_webhooks(configurations))
        if not self._version and BRAKE not in configurations:
            raise Missing(
                f"MutatingWebhookConfiguration {self._installation.name(BRAKE)} is missing; apply deploy/ again"
            )

    def _having_webhooks(self, configurations: dict[str, dict[str, Any]]) -> Set[str]:
        """The definitions that need a webhook, or have needed one lately. What was written already counts as needed."""
        now = time.monotonic()
        for definition, content in configurations.items():
            is_of_before = definition not in self._webhook_needed and content.get("webhooks")
            if self._needs_webhook(definition) or is_of_before:
                self._webhook_needed[definition] = now
        return {
            definition
            for definition in configurations.keys() & self._webhook_needed.keys()
            if now - self._webhook_needed[definition] <= SETTLED_SECONDS
        }

    def _needs_webhook(self, definition: str) -> bool:
        if not self._version or definition == STEER:
            return True
        # Its conditions name no controllers, so that it is asked about the new pods of all while it is installed.
        return definition == BRAKE and bool(self._parameters.parameter(BRAKE).owners)

    def _configurations(self) -> dict[str, dict[str, Any]]:
        """The webhook configurations that exist, by definition."""
        configurations = {}
        for definition in NAMES:
            try:
                configurations[definition] = self._client.get(MUTATING_WEBHOOKS, self._installation.name(definition))
            except NotFound:
                continue
        return configurations

    def _apply(self, configurations: dict[str, dict[str, Any]], with_webhook: Set[str]) -> None:
        uids = {definition: content["metadata"]["uid"] for definition, content in configurations.items()}
        wanted = (self._version, uids, with_webhook, self._authority)
        if wanted == self._applied and time.monotonic() - self._applied_at < REPEAT_SECONDS:
            return
        for definition, uid in uids.items():
            if self._version:
                self._apply_policy(definition, uid, self._version)
            if definition not in with_webhook:
                self._apply_webhook(definition, uid, [])
            elif self._authority is not None:
                client = self._client_config(definition, self._authority)
                self._apply_webhook(definition, uid, [webhook(self._installation, definition, client)])
        if wanted != self._applied:
            beside = f"policies ({self._version}), webhooks beside {', '.join(sorted(with_webhook)) or 'none'}"
            means = beside if self._version else "the webhook"
            _log.info("applied for new pods, as %s: %s", means, ", ".join(uids) or "nothing")
        self._applied, self._applied_at = wanted, time.monotonic()

    def _apply_policy(self, definition: str, owner: str, version: str) -> None:
        name = self._installation.name(definition)
        reference = {"apiVersion": MUTATING_WEBHOOKS.api_version, "kind": "MutatingWebhookConfiguration"}
        for kind, content in zip(
            POLICY_KINDS, policy_and_binding(self._installation, definition, version), strict=True
        ):
            content["metadata"]["ownerReferences"] = [{**reference, "name": name, "uid": owner}]
            self._client.apply(in_version(kind, version), name, content)

    def _apply_webhook(self, definition: str, uid: str, webhooks: list[dict[str, Any]]) -> None:
        name = self._installation.name(definition)
        content: dict[str, Any] = {
            "apiVersion": MUTATING_WEBHOOKS.api_version,
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name, "uid": uid},  # one that somebody has just deleted is not created anew
        }
        if webhooks:
            content["webhooks"] = webhooks
        self._client.apply(MUTATING_WEBHOOKS, name, content)

    def _client_config(self, definition: str, authority: bytes) -> dict[str, Any]:
        bundle = {"caBundle": b64encode(authority).decode()}
        if self._url:
            return {"url": f"{self._url}/{definition}", **bundle}
        namespace, name = self._installation.namespace, self._installation.service
        return {"service": {"namespace": namespace, "name": name, "path": f"/{definition}", "port": 443}, **bundle}

    def _serve(self) -> None:
        if not self._address:
            return
        known, fresh = self._key_pairs()
        # Not yet the fresh ones: API servers may not trust a new authority so soon. Next time they are known.
        shown = known or fresh
        if shown is None:
            return  # the leading operator has not issued any yet
        if self._webhook is None:
            self._parameters.read(self._client, self._installation.namespace)
            self._webhook = Webhook(self._address, shown, self._parameters.parameter, self._opted_out.has, self._took)
            _log.info("the admission webhook listens at %s", self._address)
            self._watch_parameters()
        elif shown != self._shown:
            self._webhook.use(shown)
        self._shown = shown
        self._authority = (fresh or shown).authority

    def _key_pairs(self) -> tuple[KeyPairs | None, KeyPairs | None]:
        """Those of the Secret, and those that the leading operator has just renewed them with."""
        name, namespace = self._installation.service, self._installation.namespace
        secret = self._client.get(SECRETS, name, namespace)
        known = KeyPairs.of_secret(secret.get("data") or {})
        if not self._leads():
            return known, None
        # 8 MiB, and most operators do not lead.
        from topomend.gating.certificates import expiry, renewed  # noqa: PLC0415

        fresh = renewed(known, self._hosts(), dt.datetime.now(dt.UTC))
        self.certificate_expiry = expiry(known) if known else 0.0
        if fresh is not None:
            version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
            self._client.merge(SECRETS, name, {"metadata": version, "data": fresh.as_secret()}, namespace)
            _log.info("Secret %s/%s has a new certificate", namespace, name)
        return known, fresh

    def _hosts(self) -> list[str]:
        if self._url:
            return [urlsplit(self._url).hostname or ""]
        return [f"{self._installation.service}.{self._installation.namespace}.svc"]

    def _report(self, failed: Exception | None) -> None:
        problem = str(failed) if failed else ""
        if problem and problem != self._problem:
            # Where something is missing, somebody switched it off or is draining.
            level = logging.INFO if isinstance(failed, Missing) else logging.WARNING
            _log.log(level, "new pods are not all gated: %s", problem)
        self._problem = problem


def served_version(client: Client) -> str:
    """The newest version in which the API server serves the policies; empty if it does not. Raises APIError."""
    served = (version for version in _VERSIONS if client.serves(in_version(MUTATING_ADMISSION_POLICIES, version)))
    return next(served, "")


def in_version(kind: Resource, version: str) -> Resource:
    """The kind in this version of its group."""
    return kind._replace(api_version=f"{ADMISSION}/{version}")

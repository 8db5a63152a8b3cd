"""The four definitions of what happens to a new pod, as MutatingAdmissionPolicies and as webhooks of the same effect.

Each is one YAML file of this folder, the policy and its binding; ``aligned.cel`` is a condition of three of them, and
``stamp.cel`` the text of a stamp: whoever creates the pod, as the policy topomend-marks compares it. A review asks
about one name a line, so a name with a line break, which could pass for several, is none. A webhook has the policy's
rules and those of its conditions that need no parameter object; what is left of the definition is in ``review``.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from topomend.runtime.manifests import documents
from topomend.wire.group import CREATOR_ANNOTATION, GROUP

STEER, BRAKE, CREATOR, CHANGES = NAMES = ("steer", "brake", "creator", "changes")

SERVICE = "topomend-gating"
"""The name of the webhook's Service and of the Secret with its certificate, without an installation's prefix."""

ADMISSION = "admissionregistration.k8s.io"
TIMEOUT_SECONDS = 2
"""How long the API server waits for the webhook: a pod is created without a gate rather than late."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The names that one installation goes by. ``service`` is ``topomend-gating`` with a prefix, a suffix or both."""

    namespace: str
    account: str
    service: str = SERVICE

    def __post_init__(self) -> None:
        if SERVICE not in self.service:
            raise ValueError(f"{self.service!r} does not contain {SERVICE!r}, from which other names are derived")

    def name(self, definition: str) -> str:
        """The name of a definition's policy, binding and webhook configuration."""
        return self.service.replace(SERVICE, f"topomend-{definition}")


def policy_and_binding(installation: Installation, definition: str, version: str) -> tuple[dict[str, Any], ...]:
    """The policy and its binding, in the group's ``version``: ``v1`` or ``v1beta1``, which have the same fields."""
    names = {name: installation.name(name) for name in NAMES}
    stamp = f"({_text('stamp.cel').strip()})"
    unstamped = f"object.metadata.?annotations[?'{CREATOR_ANNOTATION}'].orValue('') != {stamp}"
    text = Template(_text(f"{definition}.yaml")).substitute(
        names,
        namespace=installation.namespace,
        account=installation.account,
        aligned=_quoted(_text("aligned.cel").strip()),
        unstamped=_quoted(unstamped),
        stamp=" ".join(stamp.split()),
    )
    return tuple({**content, "apiVersion": f"{ADMISSION}/{version}"} for content in documents(text))


def webhook(installation: Installation, definition: str, client: dict[str, Any]) -> dict[str, Any]:
    """The webhook of the same effect. ``client`` says where the API server finds it (WebhookClientConfig)."""
    spec = policy_and_binding(installation, definition, "v1")[0]["spec"]
    constraints = spec["matchConstraints"]
    conditions = [condition for condition in spec["matchConditions"] if "params" not in condition["expression"]]
    return {
        "name": f"{definition}.gating.{GROUP}",
        "clientConfig": client,
        "rules": constraints["resourceRules"],
        "namespaceSelector": constraints.get("namespaceSelector", {}),
        "matchConditions": conditions,
        "reinvocationPolicy": spec["reinvocationPolicy"],
        "failurePolicy": spec["failurePolicy"],
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }


def _quoted(text: str) -> str:
    return json.dumps(text)  # a string of JSON is one of YAML


@cache
def _text(file: str) -> str:
    return resources.files(__package__).joinpath(file).read_text()

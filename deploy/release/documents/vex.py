"""What a release says of vulnerabilities that scanners report of it and that do not concern it: an OpenVEX document.

Owns the statements and their layout, https://github.com/openvex/spec version 0.2.0. ``make audit`` finds what concerns
the locked packages; a statement is added here for a finding that was looked into. A test checks each reason.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

CONTEXT = "https://openvex.dev/ns/v0.2.0"

NOT_PRESENT = "component_not_present"


@dataclass(frozen=True, slots=True)
class NotAffected:
    """A vulnerability of a package, by its package URL without version, and why topomend's image is not affected."""

    vulnerability: str
    package: str
    justification: str
    notes: str


STATEMENTS = (
    NotAffected(
        "CVE-2025-8869",
        "pkg:pypi/pip",
        NOT_PRESENT,
        "Scanners find pip in a layer of the base image. The Dockerfile removes it, and no container has it.",
    ),
)


def document(version: str, source: str, epoch: int) -> str:
    """The document about the image of ``version`` as JSON, issued at ``epoch``. ``source`` is the repository's URL."""
    time = datetime.fromtimestamp(epoch, UTC).isoformat()
    made = {
        "@context": CONTEXT,
        "@id": f"{source}/releases/download/v{version}/{file_name(version)}",
        "author": f"topomend's maintainers, {source}",
        "timestamp": time,
        "version": 1,
        "statements": [
            {
                "vulnerability": {"name": each.vulnerability},
                "products": [{"@id": f"pkg:oci/topomend?tag=v{version}", "subcomponents": [{"@id": each.package}]}],
                "status": "not_affected",
                "justification": each.justification,
                "status_notes": each.notes,
            }
            for each in STATEMENTS
        ],
    }
    return json.dumps(made, indent=1) + "\n"


def file_name(version: str) -> str:
    """The document's file name in a release."""
    return f"topomend-v{version}.openvex.json"

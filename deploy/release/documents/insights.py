"""SECURITY-INSIGHTS.yml: where a program finds the project's policies, its contacts and how releases can be checked.

Owns the file's content, by version 2 of https://github.com/ossf/security-insights-spec. All its addresses are below the
repository's own, which the sources do not know: so a release makes the file, and whoever publishes commits it there.
"""

import yaml

SCHEMA = "2.0.0"

MAINTAINERS = "topomend's maintainers"


def document(version: str, source: str, day: str) -> str:
    """The file as YAML. ``source`` is the repository's URL, ``day`` the date of the changelog's section."""

    def page(path: str) -> str:
        return f"{source}/blob/v{version}/{path}"

    project = {
        "name": "topomend",
        "homepage": source,
        "administrators": [{"name": MAINTAINERS, "primary": True}],
        "repositories": [
            {"name": "topomend", "comment": "All of topomend: programs, chart, image, pages.", "url": source}
        ],
        "vulnerability-reporting": {
            "reports-accepted": True,
            "bug-bounty-available": False,
            "security-policy": page("SECURITY.md"),
            "comment": "Reports are private advisories of the repository; no address of a person is published.",
        },
        "documentation": {
            "detailed-guide": page("docs/README.md"),
            "quickstart-guide": page("docs/try/ten-minutes.md"),
            "code-of-conduct": page("CODE_OF_CONDUCT.md"),
            "release-process": page("docs/contribute/release.md"),
            "support-policy": page("SECURITY.md"),
            "signature-verification": page("docs/contribute/release.md"),
        },
    }
    repository = {
        "status": "active",
        "url": source,
        "accepts-change-request": True,
        "accepts-automated-change-request": False,
        "no-third-party-packages": False,
        "core-team": [{"name": MAINTAINERS, "primary": True}],
        "license": {"url": page("LICENSE"), "expression": "Apache-2.0"},
        "security": {
            "assessments": {
                "self": {
                    "comment": "What each account may do through topomend, and what remains.",
                    "evidence": page("docs/security/accounts.md"),
                }
            },
            "tools": [
                {
                    "name": "make audit",
                    "type": "SCA",
                    "comment": "Looks the locked packages up in the OSV database.",
                    "rulesets": ["default"],
                    "integration": {"adhoc": True, "ci": False, "release": True},
                    "results": {},
                }
            ],
        },
        "documentation": {
            "contributing-guide": page("CONTRIBUTING.md"),
            "dependency-management-policy": page("CONTRIBUTING.md"),
            "security-policy": page("SECURITY.md"),
        },
        "release": {
            "automated-pipeline": False,
            "distribution-points": [{"uri": f"{source}/releases", "comment": "Archives, sums and their signature."}],
            "changelog": page("CHANGELOG.md"),
            "attestations": [
                {
                    "name": "provenance.json",
                    "location": f"{source}/releases/download/v{version}/provenance.json",
                    "predicate-uri": "https://slsa.dev/provenance/v1",
                }
            ],
        },
    }
    header = {"schema-version": SCHEMA, "last-updated": day, "last-reviewed": day, "url": page("SECURITY-INSIGHTS.yml")}
    return yaml.safe_dump({"header": header, "project": project, "repository": repository}, sort_keys=False, width=120)

"""What a sandbox installs of topomend: everything that its API server serves."""

from pathlib import Path

import pytest
import yaml

from topomend.sandbox import installation


def kinds(version: str, folder: Path) -> list[str]:
    """The kinds that are installed on this release, in their order."""
    return [item["kind"] for item in yaml.safe_load_all(installation.manifests(version, folder).read_text())]


def test_a_release_that_serves_every_kind_gets_the_one_file(tmp_path: Path) -> None:
    assert "MutatingAdmissionPolicyBinding" in kinds("v1.36.0", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", ["v1.30.4", "v1.35.9"])
def test_an_older_release_gets_the_rest(version: str, tmp_path: Path) -> None:
    whole = kinds("v1.37.1", tmp_path)
    assert kinds(version, tmp_path) == [kind for kind in whole if not kind.startswith("MutatingAdmissionPolicy")]

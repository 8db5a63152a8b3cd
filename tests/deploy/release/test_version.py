"""The version is in one place, and every file that names it names this one."""

import pytest
from deploy.release import version

from topomend import __version__


def test_every_file_names_this_version() -> None:
    named = {path: found for path in version.files() if (found := version.named(path.read_text()))}
    assert len(named) > 10
    assert {path: found for path, found in named.items() if found != {__version__}} == {}, "run make generate"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image: topomend:v0.1.0\n", "image: topomend:v2.0.0-rc.1\n"),
        ("version: 0.1.0\nappVersion: v0.1.0\n", "version: 2.0.0-rc.1\nappVersion: v2.0.0-rc.1\n"),
        ("    app.kubernetes.io/version: v0.1.0-rc.2", "    app.kubernetes.io/version: v2.0.0-rc.1"),
        ("docker build -t REGISTRY/topomend:v0.1.0 .", "docker build -t REGISTRY/topomend:v2.0.0-rc.1 ."),
        (
            'version = "0.1.0"\ndependencies = ["topomend==0.1.0"]',
            'version = "2.0.0-rc.1"\ndependencies = ["topomend==2.0.0-rc.1"]',
        ),
        # Those of other things stay.
        ("image: other:v0.1.0, Kubernetes v1.37.2", "image: other:v0.1.0, Kubernetes v1.37.2"),
        ("  version: 0.1.0", "  version: 0.1.0"),
    ],
)
def test_the_version_is_written_where_topomends_own_stands(text: str, expected: str) -> None:
    assert version.written(text, "2.0.0-rc.1") == expected

"""What it takes to build programs of a version of Kubernetes that is not released."""

import json
from pathlib import Path

import pytest
from tools.prereleases import PRERELEASES, Prerelease, environment_of, minor_of

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.replay.gates import NEWEST_MINOR, NEXT
from topomend.sandbox.releases.go_modules import NotARelease


def test_the_version_whose_rules_are_replayed_can_be_built() -> None:
    assert minor_of(NEXT) == NEWEST_MINOR + 1
    assert PRERELEASES[NEXT].before == DEFAULT_VERSION


def test_a_release_needs_no_more_than_before() -> None:
    assert minor_of("v1.32.5") == 32
    assert "GOTOOLCHAIN" not in environment_of("v1.32.5")
    assert environment_of(NEXT)["GOTOOLCHAIN"] == "auto"


@pytest.mark.parametrize("version", ["v1.38.0-alpha.1", "v1.29.0", "main"])
def test_any_other_version_is_refused(version: str) -> None:
    with pytest.raises(NotARelease):
        minor_of(version)


def test_modules_that_the_proxy_lacks_are_replaced(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "module"
    source = tree / "test" / "helper" / "inner"
    source.mkdir(parents=True)
    (source / "inner.go").write_text('package inner\n\nimport _ "k8s.io/kubernetes/test/helper/other"\n')
    (source / "inner_test.go").write_text("package inner\n")
    asked = []

    def run(*arguments: str) -> str:
        asked.append(arguments)
        return json.dumps({"Dir": str(tree)})

    made = Prerelease(
        minor=99,
        go="1.99.0",
        before="v1.98.0",
        absent=("example.org/absent",),
        moved={"example.org/moved": "test/helper"},
        instead={"example.org/other": "v1.0.0"},
    )
    assert list(made.replacements(folder, run)) == [
        "-replace=example.org/absent=./modules/example.org-absent",
        "-replace=example.org/moved=./modules/example.org-moved",
        "-replace=example.org/other=example.org/other@v1.0.0",
    ]
    assert asked == [("mod", "download", "-json", "k8s.io/kubernetes@v1.98.0")]
    modules = folder / "modules"
    assert (modules / "example.org-absent" / "go.mod").read_text() == "module example.org/absent\n\ngo 1.99.0\n"
    copied = modules / "example.org-moved" / "inner"
    assert [path.name for path in copied.iterdir()] == ["inner.go"]
    assert '"example.org/moved/other"' in (copied / "inner.go").read_text()

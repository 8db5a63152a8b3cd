"""The go.mod of another release names every module that k8s.io/kubernetes of that release needs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from topomend.sandbox.releases import go_modules
from topomend.sandbox.releases.toolchain import find_go

BUILT = "v1.36.3"
"""The release whose modules every machine has that built the sandbox."""


@pytest.mark.parametrize(("release", "minor"), [("v1.30.0", 30), ("v1.37.1", 37)])
def test_a_release_has_a_minor_version(release: str, minor: int) -> None:
    assert go_modules.minor_of(release) == minor


@pytest.mark.parametrize("text", ["", "1.32.5", "v1.29.9", "v1.32", "v1.32.5-rc.1", "v2.0.0", "v1.32.5\n", "v1.٣٢.5"])
def test_other_texts_are_no_releases(text: str) -> None:
    with pytest.raises(go_modules.NotARelease, match=r"is not a release from v1\.30\.0 on, such as v1\.36\.3"):
        go_modules.minor_of(text)


@pytest.mark.cluster
def test_every_staging_module_is_required_at_the_release_and_samples_are_left_out(tmp_path: Path) -> None:
    go = find_go("1.26.0", print)

    def run(*arguments: str) -> str:
        environment = {**os.environ, **go_modules.ENVIRONMENT, "GOWORK": "off"}
        command = [str(go), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    go_modules.write_go_mod(tmp_path, "example.com/made", "1.26.0", BUILT, run)
    made = json.loads(run("mod", "edit", "-json"))
    required = {module["Path"]: module["Version"] for module in made["Require"]}
    assert required["k8s.io/kubernetes"] == BUILT
    assert {required[f"k8s.io/{name}"] for name in ("api", "apimachinery", "kubelet", "cri-client")} == {"v0.36.3"}
    assert "github.com/spf13/cobra" in required
    assert not [path for path in required if "sample" in path]
    replaced = {module["Old"]["Path"]: module["New"]["Path"] for module in made["Replace"]}
    assert replaced["k8s.io/sample-apiserver"] == "./unused"
    assert run("list", "-m", "k8s.io/api").split() == ["k8s.io/api", "v0.36.3", "=>", "k8s.io/api", "v0.36.3"]

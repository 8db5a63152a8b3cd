"""The documents of a release: krew's manifest, the provenance, the sums."""

import json
import subprocess
from pathlib import Path

import yaml
from deploy.release.documents.statement import BUILDER, INPUT_FILES, statement, sums
from deploy.release.kubectl_plugin.krew import manifest
from deploy.release.kubectl_plugin.plugin import archive_name
from deploy.release.kubectl_plugin.standalone import PLATFORMS

SOURCE = "https://example.com/owner/topomend"


def test_the_manifest_names_each_archive_with_its_own_sum() -> None:
    digests = {archive_name("1.2.3", platform): f"{number:064x}" for number, platform in enumerate(PLATFORMS)}
    read = yaml.safe_load(manifest("1.2.3", SOURCE, digests))
    assert (read["metadata"]["name"], read["spec"]["version"], read["spec"]["homepage"]) == ("numa", "v1.2.3", SOURCE)
    found = {
        (each["selector"]["matchLabels"]["os"], each["selector"]["matchLabels"]["arch"]): (each["uri"], each["sha256"])
        for each in read["spec"]["platforms"]
    }
    assert found == {
        (platform.os, platform.arch): (
            f"{SOURCE}/releases/download/v1.2.3/kubectl-numa-v1.2.3-{platform.os}-{platform.arch}.tar.gz",
            f"{number:064x}",
        )
        for number, platform in enumerate(PLATFORMS)
    }


def test_sha256sum_accepts_the_sums_and_notices_a_change(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").write_text("a")
    (tmp_path / "SHA256SUMS").write_text(sums([tmp_path / "b", tmp_path / "a"]))
    check = ["sha256sum", "--check", "SHA256SUMS"]
    accepted = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (accepted.returncode, accepted.stdout) == (0, "a: OK\nb: OK\n")
    (tmp_path / "a").write_text("c")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_the_provenance_names_the_files_the_commit_and_no_builder_but_the_person(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    made = json.loads(statement([tmp_path / "a"], "c0ffee", SOURCE, {"version": "1.2.3"}))
    (subject,) = made["subject"]
    assert subject["name"] == "a"
    assert subject["digest"]["sha256"].startswith("ca978112ca1b")
    dependencies = made["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0] == {"name": "source", "uri": SOURCE, "digest": {"gitCommit": "c0ffee"}}
    assert [each["name"] for each in dependencies[1:]] == list(INPUT_FILES)
    assert made["predicate"]["runDetails"] == {"builder": {"id": BUILDER}}
    assert made == json.loads(statement([tmp_path / "a"], "c0ffee", SOURCE, {"version": "1.2.3"}))

"""The sizes and labels that deploy/image/build.py reads from archives of docker save."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from deploy.image import build

BASE = {"usr/bin/python": b"base"}
OWN = {"opt/topomend/bin/topomend": b"own", "opt/topomend/sbom.cdx.json": b"{}"}


def tar(files: dict[str, bytes], mtime: int = 0) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), mtime
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def saved(path: Path, *layers: bytes, config: bytes = b"{}") -> Path:
    names = [f"layer-{number}.tar" for number in range(len(layers))]
    manifest = json.dumps([{"Config": "config.json", "Layers": names}]).encode()
    path.write_bytes(tar({"manifest.json": manifest, "config.json": config, **dict(zip(names, layers, strict=True))}))
    return path


def test_the_images_own_layers_are_those_above_the_base(tmp_path: Path) -> None:
    image = build.read_archive(saved(tmp_path / "a", tar(BASE), tar(OWN), tar({"more": b"more"})))
    assert [layer.size for layer in image.own_layers] == [5, 4]
    assert image.sbom == b"{}"


def test_an_image_without_a_bill_of_materials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(build.Failed, match=r"the image has no /opt/topomend/sbom\.cdx\.json"):
        build.read_archive(saved(tmp_path / "a", tar(BASE)))


def test_the_same_image_has_no_differences(tmp_path: Path) -> None:
    one, other = (build.read_archive(saved(tmp_path / name, tar(BASE), tar(OWN))) for name in "ab")
    assert build.differences(one, other) == []


@pytest.mark.parametrize(
    ("layer", "config", "lines"),
    [
        (tar(OWN | {"opt/topomend/bin/topomend": b"another"}), b"{}", ["layer 2: /opt/topomend/bin/topomend"]),
        (tar(OWN | {"etc/more": b""}), b"{}", ["layer 2: /etc/more"]),
        (tar(OWN, mtime=1), b"{}", ["layer 2: /opt/topomend/bin/topomend", "layer 2: /opt/topomend/sbom.cdx.json"]),
        (tar(dict(reversed(OWN.items()))), b"{}", ["the order of the layers' files"]),
        (tar(OWN), b'{"created": 1}', ["the configuration"]),
    ],
)
def test_whatever_differs_is_reported(layer: bytes, config: bytes, lines: list[str], tmp_path: Path) -> None:
    one = build.read_archive(saved(tmp_path / "a", tar(BASE), tar(OWN)))
    other = build.read_archive(saved(tmp_path / "b", tar(BASE), layer, config=config))
    assert build.differences(one, other) == lines


@pytest.mark.parametrize("engine", build.ENGINES)
def test_every_engine_is_given_the_commits_time_and_the_labels(engine: str) -> None:
    arguments = {"SOURCE_DATE_EPOCH": "5", "REVISION": "r"}
    command = build.Engine(engine).build_command("topomend:t", {"label": "value"}, arguments)
    assert command[0] == engine
    assert "--tag=topomend:t" in command
    assert "--label=label=value" in command
    assert {"--build-arg=SOURCE_DATE_EPOCH=5", "--build-arg=REVISION=r"} <= {*command}
    assert "--timestamp=5" in command or any("rewrite-timestamp=true" in word for word in command)


@pytest.mark.parametrize(("engine", "given"), [("docker", False), ("podman", True), ("buildah", True)])
def test_an_engine_that_may_not_know_its_own_platform_is_told(engine: str, given: bool) -> None:
    command = build.Engine(engine).build_command("topomend:t", {}, {"SOURCE_DATE_EPOCH": "5"})
    assert (f"--build-arg=BUILDPLATFORM=linux/{build.native()}" in command) == given
    assert build.native() in {"amd64", "arm64"}


def test_options_precede_a_command_and_flags_follow_it() -> None:
    engine = build.Engine("buildah", ("--root=/r",), ("--signature-policy=/p",))
    building = engine.build_command("topomend:t", {}, {"SOURCE_DATE_EPOCH": "5"})
    saving = engine.save_command("topomend:t", Path("/a.tar"))
    assert building[:4] == ["buildah", "--root=/r", "build", "--signature-policy=/p"]
    assert saving[:4] == ["buildah", "--root=/r", "push", "--signature-policy=/p"]
    assert saving[-1] == "docker-archive:/a.tar:topomend:t"


def test_the_provenance_names_every_input_and_output_by_its_digest(tmp_path: Path) -> None:
    image = build.read_archive(saved(tmp_path / "a", tar(BASE), tar(OWN)))
    base = "python:3.13-slim@sha256:1234"
    inputs = build.Inputs(build.Commit("c0ffee", 7), "v1", "https://example.com/topomend", base, ("--no-cache",))
    text = build.provenance_of(image, "topomend:v1", inputs)
    assert text == build.provenance_of(image, "topomend:v1", inputs)
    statement = json.loads(text)
    (subject,) = statement["subject"]
    assert subject == {"name": "topomend:v1", "digest": {"sha256": hashlib.sha256(b"{}").hexdigest()}}
    build_of, run = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert build_of["externalParameters"] == {"version": "v1", "epoch": 7, "flags": ["--no-cache"], "base": base}
    digests = {
        descriptor["name"]: descriptor["digest"] for descriptor in build_of["resolvedDependencies"] + run["byproducts"]
    }
    assert digests["source"] == {"gitCommit": "c0ffee"}
    lock = (build.ROOT / "requirements" / "runtime.lock").read_bytes()
    assert digests["requirements/runtime.lock"] == {"sha256": hashlib.sha256(lock).hexdigest()}
    assert digests[f"{base} layer 0"] == {"sha256": hashlib.sha256(tar(BASE)).hexdigest()}
    assert digests["layer 0"] == {"sha256": hashlib.sha256(tar(OWN)).hexdigest()}
    assert digests["sbom"] == {"sha256": hashlib.sha256(b"{}").hexdigest()}


def test_the_provenance_names_the_base_that_the_dockerfile_takes(tmp_path: Path) -> None:
    image = build.read_archive(saved(tmp_path / "a", tar(BASE), tar(OWN)))
    text = build.provenance_of(image, "topomend:v1", build.Inputs(build.Commit("c0ffee", 7), "v1"))
    base = json.loads(text)["predicate"]["buildDefinition"]["externalParameters"]["base"]
    assert f"ARG PYTHON={base}\n" in (build.ROOT / "Dockerfile").read_text()

"""How the image of each processor is asked for."""

from pathlib import Path

import pytest
from deploy.image.build import ENGINES, Commit, Engine, Inputs, native
from deploy.release import images
from deploy.release.__main__ import unbuildable
from deploy.release.images import ARCHITECTURES, Recipe, runs

INPUTS = Inputs(Commit("c0ffee", 1_600_000_000), "v1.2.3", base="base:both", flags=("--quiet",))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_processor_has_its_own_platform_and_all_have_one_base(architecture: str) -> None:
    inputs = Recipe(Engine("buildah"), INPUTS).for_architecture(architecture)
    assert inputs.flags == (f"--platform=linux/{architecture}", "--quiet")
    assert inputs.base == "base:both"


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_writes_the_tag_to_the_archive_in_its_own_storage(name: str) -> None:
    command = Engine(name, ("--root=/storage",)).oci_command("topomend:v1", Path("/x/oci.tar"))
    assert command[:2] == [name, "--root=/storage"]
    assert "topomend:v1" in command
    assert "/x/oci.tar" in " ".join(command)


def test_a_foreign_processors_programs_run_where_the_kernel_knows_by_what(tmp_path: Path) -> None:
    foreign, name = {"amd64": ("arm64", "qemu-aarch64"), "arm64": ("amd64", "qemu-x86_64")}[native()]
    assert runs(native(), tmp_path)
    assert not runs(foreign, tmp_path)
    (tmp_path / "status").write_text("enabled\n")
    (tmp_path / name).write_text("enabled\n")
    assert runs(foreign, tmp_path)


def test_a_kernel_that_is_not_told_of_qemu_is_named_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "runs", lambda architecture: architecture == "amd64")
    (reason,) = unbuildable(Engine("buildah"), ARCHITECTURES)
    assert reason.startswith("this kernel runs no programs of arm64, of which buildah needs two")
    assert "qemu-user-static" in reason
    assert unbuildable(Engine("docker"), ARCHITECTURES) == []


def test_a_machine_without_an_engine_is_told_which_there_are() -> None:
    assert unbuildable(None, ARCHITECTURES) == [
        "no program here can build an image: install docker with buildx, podman or buildah"
    ]

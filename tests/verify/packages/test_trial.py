"""The wheel says that it is typed, and is; every end of the allowed packages is found on this machine."""

import sys
import zipfile
from pathlib import Path

import pytest
from tests.clusters import ROOT
from tools.commands import Unavailable
from verify.packages.environment import NEWEST, Environment, build_wheel, build_wheels, pinned_test_packages
from verify.packages.pythons import newest, oldest, version
from verify.packages.trial import QUICK_TESTS, check_types, try_core


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The folder of an environment that has the wheel's files and no other package."""
    wheel = build_wheel(tmp_path)
    place = tmp_path / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    place.mkdir(parents=True)
    zipfile.ZipFile(wheel).extractall(place)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
    return tmp_path


def test_a_program_that_uses_the_wheel_is_checked_with_its_types(installed: Path) -> None:
    python = str(installed / "bin" / "python")
    assert check_types(python, installed) == "yes"
    (marker,) = installed.glob("lib/*/site-packages/topomend/py.typed")
    marker.unlink()
    with pytest.raises(Unavailable, match=r"py\.typed"):
        check_types(python, installed)


def test_the_oldest_python_is_the_one_that_is_required() -> None:
    assert version(oldest()).startswith("3.11.")
    assert tuple(map(int, version(newest()).split(".")[:2])) >= (3, 11)


def test_the_tests_that_run_each_time_exist_and_have_what_they_need() -> None:
    assert [name for name in QUICK_TESTS if not (ROOT / "tests" / name).exists()] == []
    assert [one.partition("==")[0] for one in pinned_test_packages()] == [
        "pytest",
        "pytest-timeout",
        "pytest-xdist",
        "hypothesis",
        "grimp",
    ]


@pytest.mark.night  # it asks PyPI; tests/cli/test_lazy.py tries the commands without
def test_the_package_alone_has_the_library_and_names_what_it_lacks(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", sys.executable, NEWEST, core=True)
    environment.install(build_wheels(tmp_path))
    assert try_core(environment) == ("3 extras", "yes", "-", "yes", "-")

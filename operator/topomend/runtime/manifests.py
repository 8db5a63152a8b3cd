"""The manifests of this version, which the package carries with it; in a clone they are in ``deploy/``."""

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml


def install_yaml() -> Traversable:
    """The file with all of topomend's manifests. It may be in an archive, as the rest of the package."""
    packaged = resources.files("topomend").joinpath("deploy", "install.yaml")
    return packaged if packaged.is_file() else Path(__file__).parents[3] / "deploy" / "install.yaml"


def documents(text: str) -> list[Any]:
    """The documents of a YAML text, by libyaml where PyYAML has it: in Python they take ten times as long.

    Raises yaml.YAMLError.
    """
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))

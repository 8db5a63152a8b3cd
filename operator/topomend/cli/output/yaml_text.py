"""YAML as every reader of it takes it, kubectl and this program among them."""

from contextlib import suppress
from typing import Any

import yaml


def yaml_text(*documents: Any) -> str:
    """The documents as YAML that kubectl and this program read as they are."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Quotes texts that other readers of YAML take for numbers: a PCI class 018000 is 18000 to kubectl."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "'" if _may_be_a_number(text) else None)


def _may_be_a_number(text: str) -> bool:
    for read in (float, lambda word: int(word, 0)):
        with suppress(ValueError):
            read(text)
            return True
    return False


_Dumper.add_representer(str, _represent_text)

"""What a kubelet reads, made of a file that some other program turns into it. Owns the noun alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topomend.check.finding import Subject
from topomend.discover.kubelet_config.files import API_VERSION, KIND, ConfigFile, file_of
from topomend.discover.kubelet_process import Flags


@dataclass(frozen=True)
class KubeletInput:
    """The kubelet's own file, if it has one, its drop-ins by name, and its flags.

    ``flags`` is None where the file that was read tells nothing of them. ``unknown`` is what also counts and is not in
    that file.
    """

    subject: Subject
    file: ConfigFile | None
    drop_ins: Mapping[str, ConfigFile] = field(default_factory=dict)
    flags: Flags | None = None
    unknown: tuple[str, ...] = ()


def configuration(name: str, content: Mapping[str, Any]) -> ConfigFile:
    """A KubeletConfiguration that a program writes to a file of this name. Raises SourceUnreadable."""
    written = {"apiVersion": API_VERSION, "kind": KIND, **content}
    return file_of(Path(name), json.dumps(written).encode())

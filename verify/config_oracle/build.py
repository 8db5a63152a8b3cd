"""The oracle of configurations: the kubelet's own loader and validation, a Go program in ``kubelet/``.

It needs the whole kubelet, as the sandbox's binary does: that one's go.mod pins the default version.
"""

from pathlib import Path

from verify.oracle.build import Program, oracle_binary

from topomend.model.nodes.kubelet import DEFAULT_VERSION

_FOLDER = Path(__file__).parent
CONFIGURATIONS = Program(
    "config-oracle",
    sources=_FOLDER / "kubelet",
    modules=_FOLDER.parents[1] / "operator" / "topomend" / "sandbox" / "binary",
    changes=(34, 36, 37),
)


def config_oracle_binary(version: str = DEFAULT_VERSION) -> Path:
    """The oracle of a Kubernetes release; see ``oracle_binary``."""
    return oracle_binary(version, CONFIGURATIONS)

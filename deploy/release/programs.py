"""The programs that a release needs, from pinned Go modules: cosign signs it, krew's own validator reads its manifest.

The standalone Pythons of the plugin's archives come the same way (``standalone``).
"""

from pathlib import Path

from tools.go_programs import GoPrograms

PROGRAMS = GoPrograms(
    Path(__file__).parent / "programs",
    {
        "cosign": "github.com/sigstore/cosign/v3/cmd/cosign",
        "krew": "sigs.k8s.io/krew/cmd/krew",
        "validate-krew-manifest": "sigs.k8s.io/krew/cmd/validate-krew-manifest",
    },
    "release",
)

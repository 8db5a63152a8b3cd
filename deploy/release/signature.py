"""The signature of SHA256SUMS, by cosign with a key of the project's own: no identity, no transparency log, no network.

``make release-key`` makes the key; COSIGN_PASSWORD has its password.
"""

import os
import sys
from pathlib import Path

from deploy.release.programs import PROGRAMS
from tools.commands import run
from tools.go_programs import NotBuilt

from topomend.sandbox.failures import SandboxUnavailable

BUNDLE = "SHA256SUMS.sigstore.json"
PUBLIC_KEY = "topomend.pub"


def sign(sums: Path, key: Path) -> list[Path]:
    """Sign the file, check the signature, and return its bundle and the public key beside it. Raises Unavailable."""
    cosign = str(PROGRAMS.program("cosign"))
    bundle, public = sums.with_name(BUNDLE), sums.with_name(PUBLIC_KEY)
    offline = ("--use-signing-config=false", "--tlog-upload=false")
    run(cosign, "sign-blob", "--yes", f"--key={key}", *offline, f"--bundle={bundle}", str(sums))
    run(cosign, "public-key", f"--key={key}", f"--outfile={public}")
    verify(sums, bundle, public)
    for path in (bundle, public):
        # cosign lets nobody else read them.
        path.chmod(0o644)
    return [bundle, public]


def verify(sums: Path, bundle: Path, public_key: Path) -> None:
    """Check the signature of the file by the public key. Raises Unavailable where it is another's or another file's."""
    cosign = str(PROGRAMS.program("cosign"))
    options = (f"--key={public_key}", "--insecure-ignore-tlog=true", f"--bundle={bundle}")
    run(cosign, "verify-blob", *options, str(sums))


def main() -> None:
    """Have cosign make ``cosign.key`` and ``cosign.pub`` in this folder; it asks for a password on the terminal."""
    try:
        cosign = PROGRAMS.program("cosign")
    except (NotBuilt, SandboxUnavailable) as failure:
        sys.exit(f"make release-key: {failure}")
    os.execv(cosign, [str(cosign), "generate-key-pair"])  # noqa: S606  its place is taken, so that it has the terminal


if __name__ == "__main__":
    main()

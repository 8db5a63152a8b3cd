"""``capture``: pack the files that discovery reads into an archive, for a bug report or a test."""

from pathlib import Path

import click

from topomend.cli.output.console import echo
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.discover.capture import capture as pack

_SUFFIXES = (".tar.gz", ".tgz")


_EXAMPLES = """\b
Examples:
  topomend capture gpu-01.tar.gz
  topomend discover --root gpu-01.tar.gz
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    metavar="DIR",
    help="The folder that contains sys/ and proc/.",
)
def capture(file: Path, root: Path) -> None:
    """Pack the files that topomend discover reads on this machine into FILE, a .tar.gz archive.

    `topomend discover --root FILE` prints the same machine anywhere. The archive contains sizes, counts and ids from
    /sys and /proc: no pod, secret, serial number, hardware address or host name.
    """
    suffix = next((ending for ending in _SUFFIXES if file.name.endswith(ending) and file.name != ending), None)
    if suffix is None:
        raise BadInput(f"{file.name}: the archive's name must end in .tar.gz")
    if file.exists():
        raise BadInput(f"{file} exists already: name another file, or remove it")
    folder = file.name.removesuffix(suffix)
    captured = pack(root, folder)
    if not captured.host.machine.cores:
        raise CannotAsk(
            f"--root {root}: no online CPU under sys/devices/system/cpu; name a folder that contains sys/ and proc/"
        )
    try:
        file.write_bytes(captured.archive)
    except OSError as error:
        raise CannotAsk(f"{file} cannot be written: {error.strerror or error}") from error
    echo(f"{file}: {captured.files} files, {len(captured.archive) / 1024:.0f} KiB")
    echo(f"To inspect it: topomend discover --root {file}")

"""``capture``: pack what discovery reads of this machine into an archive, for a bug report or a test."""

from pathlib import Path

import click

from topomend.cli.failures import BadInput, CannotAsk
from topomend.discover.capture import capture as pack

_SUFFIXES = (".tar.gz", ".tgz")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    metavar="DIR",
    help="The folder that holds sys/ and proc/: / for this host.",
)
def capture(file: Path, root: Path) -> None:
    """Pack what discovery reads of this machine into FILE.tar.gz.

    Unpacked, it is a folder for `topomend discover --root` that prints what is printed here. It holds sizes, counts
    and ids out of /sys and /proc: no pod, no secret, no serial number, no hardware address, no host name.
    """
    suffix = next((ending for ending in _SUFFIXES if file.name.endswith(ending) and file.name != ending), None)
    if suffix is None:
        raise BadInput(f"{file.name}: the archive's name must end in .tar.gz")
    folder = file.name.removesuffix(suffix)
    captured = pack(root, folder)
    if not captured.host.machine.cores:
        raise CannotAsk(
            f"--root {root}: no CPU that is online under sys/devices/system/cpu; does it hold sys/ and proc/?"
        )
    try:
        file.write_bytes(captured.archive)
    except OSError as error:
        raise CannotAsk(f"{file} cannot be written: {error.strerror or error}") from error
    click.echo(f"{file}: {captured.files} files, {len(captured.archive) / 1024:.0f} KiB")
    click.echo(f"To see what it says: tar xzf {file} && topomend discover --root {folder}")

"""What ``kubectl numa drain`` takes."""

from click.testing import CliRunner

from topomend.cli.kubectl_numa import numa


def test_a_drain_takes_no_namespace_as_it_is_about_all_of_them() -> None:
    printed = CliRunner().invoke(numa, ["drain", "-n", "foo", "--dry-run"])
    assert printed.exit_code == 2
    assert "No such option" in printed.stderr
    assert "It is about all namespaces." in CliRunner().invoke(numa, ["drain", "-h"]).stdout

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.closed_folder import closed

from topomend.cli.main import main


@pytest.mark.parametrize(
    ("name", "words"), [("machine", "is neither a shape such as"), ("sockets:1", "is unknown; a shape has")]
)
def test_a_machine_in_a_folder_that_may_not_be_entered_is_bad_input(tmp_path: Path, name: str, words: str) -> None:
    with closed(tmp_path / "closed") as folder:
        result = CliRunner().invoke(main, ["sandbox", "up", "--machine", f"{folder}/{name}"])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1

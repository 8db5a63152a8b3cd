import json

import pytest
from click.testing import CliRunner

from topomend.cli.main import main
from topomend.model.shapes.known_machines import MACHINES


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["machines", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_list_has_every_name_with_its_source() -> None:
    lines = printed().splitlines()
    assert lines[0].split() == ["NAME", "NUMA", "CPUS", "MEMORY", "DEVICES", "SOURCE"]
    assert [(line.split()[0], line.split()[-1]) for line in lines[1 : len(MACHINES) + 1]] == [
        (machine.name, machine.sources[0]) for machine in MACHINES
    ]


def test_a_machine_with_numa_nodes_without_cpus_shows_both_counts() -> None:
    assert printed("gb200").splitlines()[1].split()[:3] == ["GB200", "2+32", "144"]


def test_a_document_has_the_shape_all_sources_and_what_is_not_published() -> None:
    (record,) = json.loads(printed("BM.GPU.A100-v2.8", "-o", "json"))
    assert record["shape"] == "sockets:2 numa:4 cores:16 threads:2 memory:256Gi"
    assert len(record["sources"]) == 2
    assert "the NUMA nodes of the GPUs" in record["notPublished"]


def test_names_are_for_the_next_command() -> None:
    assert printed("-o", "name").split() == [machine.name for machine in MACHINES]


@pytest.mark.parametrize(("name", "words"), [("dgxh100", "did you mean DGX-H100"), ("x", "topomend machines lists")])
def test_an_unknown_name_is_refused_with_the_nearest(name: str, words: str) -> None:
    result = CliRunner().invoke(main, ["machines", name])
    assert result.exit_code == 2
    assert words in result.output

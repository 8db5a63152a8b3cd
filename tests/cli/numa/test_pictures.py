"""``-o svg`` and ``-o html`` of the verbs that draw, on the lists of a cluster, and what they leave to others."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from tests.builders import node_state, node_topology_object
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of
from tests.picture.drawn import of_class, texts
from verify.pictures.examples import few, two_numa_nodes

from topomend.cli.kubectl_numa import numa

Ask = Callable[..., Result]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Ask about a cluster that is served."""
    with ExitStack() as stack:

        def asked(cluster: ServedLists, *arguments: str) -> Result:
            file = stack.enter_context(kubeconfig_of(cluster, tmp_path))
            return CliRunner().invoke(numa, [*arguments, "--kubeconfig", str(file)])

        yield asked


def drawn(result: Result) -> ElementTree.Element:
    return ElementTree.fromstring(result.stdout)  # noqa: S314 - our own text


def test_show_draws_every_node_or_those_that_are_named(ask: Ask) -> None:
    cluster = cluster_of([node_state(name="a"), node_state(name="b")], [])
    everything = ask(cluster, "show", "-o", "svg")
    assert (everything.exit_code, everything.stderr) == (0, "")
    assert len(of_class(drawn(everything), "node")) == 2
    assert len(of_class(drawn(ask(cluster, "show", "b", "-o", "svg")), "node")) == 1


def test_show_draws_the_hardware_that_replay_does_not_read(ask: Ask) -> None:
    svg = drawn(ask(two_numa_nodes(), "show", "-o", "svg"))
    assert len(of_class(svg, "b-l3")) == 2
    assert len(of_class(svg, "b-pci")) == 6


def test_a_node_whose_state_cannot_be_read_has_a_section_that_says_why(ask: Ask) -> None:
    cluster = cluster_of([node_state(name="a"), node_state(name="b")], [])
    cluster.items["nodetopologies"] = [node_topology_object(node_state(name="a")), broken("b")]
    page = ask(cluster, "show", "-o", "html").stdout
    assert "its NodeTopology is malformed" in page
    assert ">Node b<" in page


def broken(name: str) -> dict[str, object]:
    return {**node_topology_object(node_state(name=name)), "status": {"machine": "none"}}


def test_a_name_that_no_node_has_is_bad_input_in_a_picture_too(ask: Ask) -> None:
    result = ask(cluster_of([node_state(name="gpu-01")], []), "show", "gpu-02", "-o", "svg")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean gpu-01?" in result.stderr


@pytest.mark.parametrize("verb", [["show"], ["show", "--summary"], ["aligned"], ["explain", "pod/train-9"]])
@pytest.mark.parametrize("output", ["svg", "html"])
def test_a_picture_does_not_follow_what_changes(ask: Ask, verb: list[str], output: str) -> None:
    result = ask(few(), *verb, "--watch", "-o", output)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"Error: --watch with -o {output}: a picture is one file, which does not change; leave --watch out\n"
    )


@pytest.mark.parametrize("by", ["container", "owner", "node"])
def test_aligned_draws_each_of_its_views(ask: Ask, by: str) -> None:
    result = ask(few(), "aligned", "-A", "--by", by, "-o", "html")
    assert (result.exit_code, result.stderr) == (0, "")
    expected = {"container": "default/wide main on gpu-04", "owner": "Job/web", "node": "gpu-04"}[by]
    assert expected in result.stdout
    assert 'class="aligned"' in result.stdout


def test_explain_draws_several_pods_in_a_section_each(ask: Ask) -> None:
    cluster = few()
    page = ask(cluster, "explain", "-A", "-o", "html")
    assert page.exit_code == 1
    assert page.stdout.count("<section") == 2
    assert "refused: default/train-9" in page.stdout
    assert "waits for a node: default/train-10" in page.stdout
    assert "asked   NUMA 0 free" not in page.stdout, "the table of amounts is a drawing there"


def test_explain_of_a_running_pod_says_that_its_node_has_it(ask: Ask) -> None:
    result = ask(few(), "explain", "pod/train-4", "-o", "svg")
    assert result.exit_code == 0
    assert "✓ admits it" in texts(drawn(result))


def test_make_room_where_nobody_can_go_says_so(ask: Ask) -> None:
    huge = few()
    for pod in huge.items["pods"]:
        if pod["metadata"]["name"] == "train-10":
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "99"
            pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "99"
    result = ask(huge, "make-room", "pod/train-10", "-o", "html")
    assert result.exit_code == 1
    assert "no node would admit it, whoever ended" in result.stdout


def test_what_if_names_every_pod_that_is_refused_or_waits(ask: Ask) -> None:
    page = ask(few(), "what-if", "--policy", "single-numa-node", "-o", "html").stdout
    assert "Pods that are refused or wait" in page
    assert "default/wide" in page


def test_a_command_that_draws_nothing_loads_no_drawing() -> None:
    """Only the formats and the letters are loaded: the plugin starts as quickly as before."""
    code = (
        "import sys; import topomend.cli.numa.show, topomend.cli.numa.aligned, topomend.cli.numa.explain.explain, "
        "topomend.cli.numa.make_room, topomend.cli.numa.what_if.what_if; "
        "print(sorted(name for name in sys.modules if name.startswith('topomend.picture.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['topomend.picture.form']"


@pytest.mark.parametrize("verb", ["show", "aligned", "explain", "make-room", "what-if"])
def test_the_help_of_a_verb_that_draws_names_the_formats(verb: str) -> None:
    words = " ".join(CliRunner().invoke(numa, [verb, "--help"]).stdout.split())
    assert "svg|html" in words
    assert "svg and html are a picture, as one file" in words


@pytest.mark.parametrize("verb", ["show", "aligned", "explain", "make-room", "what-if"])
def test_the_shell_completes_the_formats(verb: str) -> None:
    complete = ShellComplete(numa, {}, "kubectl-numa", "_COMPLETE").get_completions
    assert [item.value for item in complete([verb, "-o"], "s")] == ["svg"]
    assert [item.value for item in complete([verb, "-o"], "h")] == ["html"]


@pytest.mark.parametrize("verb", ["fit", "relaunches", "check", "export"])
def test_a_verb_that_does_not_draw_takes_no_picture(verb: str) -> None:
    result = CliRunner().invoke(numa, [verb, "-o", "svg"])
    assert result.exit_code == 2
    assert "'svg' is not one of" in result.stderr

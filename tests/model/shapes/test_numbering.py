from topomend.model.bitmask import format_id_list
from topomend.model.shapes.shape import parse_shape


def cpus_of_numa_nodes(shape: str) -> dict[int, str]:
    return {node: format_id_list(cpus) for node, cpus in parse_shape(shape).machine().cpus_of_numa_node.items()}


def cores(shape: str) -> list[str]:
    return [format_id_list(core.threads) for core in parse_shape(shape).machine().cores]


def test_interleaved_cpus_are_dealt_out_to_numa_nodes_in_turn() -> None:
    shape = "sockets:2 cores:4 threads:2 numbering:interleaved"
    assert cpus_of_numa_nodes(shape) == {0: "0,2,4,6,8,10,12,14", 1: "1,3,5,7,9,11,13,15"}
    assert cores(shape) == ["0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"]


def test_adjacent_threads_follow_each_other() -> None:
    shape = "sockets:2 cores:2 threads:2 numbering:adjacent"
    assert cpus_of_numa_nodes(shape) == {0: "0-3", 1: "4-7"}
    assert cores(shape) == ["0-1", "2-3", "4-5", "6-7"]


def test_both_deal_out_whole_cores() -> None:
    shape = "sockets:2 cores:2 threads:2 numbering:interleaved,adjacent"
    assert cpus_of_numa_nodes(shape) == {0: "0-1,4-5", 1: "2-3,6-7"}


def test_cores_of_one_thread_come_after_the_others() -> None:
    assert cores("cores:2 threads:2 ecores:3 numbering:adjacent") == ["0-1", "2-3", "4", "5", "6"]
    assert cores("cores:2 threads:2 ecores:3") == ["0,5", "1,6", "2", "3", "4"]

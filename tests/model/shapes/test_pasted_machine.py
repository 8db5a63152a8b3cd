"""What lscpu and numactl print, in the forms that they print it in."""

import pytest

from topomend.model.bitmask import format_id_list
from topomend.model.shapes.pasted_machine import BEGINNING, InvalidPaste, read_pasted_machine

LSCPU = """\
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ      MHZ
  0    0      0    0 0:0:0:0          yes 3900.0000 800.0000 1200.000
  1    1      1    1 16:16:16:1       yes 3900.0000 800.0000 1200.000
  2    0      0    0 0:0:0:0          yes 3900.0000 800.0000 1200.000
  3    1      1    2 17:17:17:1       yes 3900.0000 800.0000 1200.000
  4    -      -    - -                 no         -        -        -
"""
NUMACTL = """\
available: 3 nodes (0-2)
node 0 cpus: 0 2
node 0 size: 8192 MB
node 0 free: 8000 MB
node 1 cpus: 1 3
node 1 size: 4096 MB
node 1 free: 4000 MB
node 2 cpus:
node 2 size: 16384 MB
node 2 free: 16384 MB
node distances:
node   0   1   2
  0:  10  21  14
  1:  21  10  24
  2:  14  24  10
"""


@pytest.mark.parametrize("text", [LSCPU + NUMACTL, f"# numactl -H\n{NUMACTL}\nroot@host:~# lscpu -e\n{LSCPU}\n"])
def test_both_outputs_make_a_machine_in_either_order(text: str) -> None:
    assert BEGINNING.search(text)
    machine = read_pasted_machine(text).machine
    assert [format_id_list(core.threads) for core in machine.cores] == ["0,2", "1", "3"]
    assert [(core.socket, core.numa_node) for core in machine.cores] == [(0, 0), (1, 1), (1, 1)]
    assert [(node.id, node.memory >> 30) for node in machine.numa_nodes] == [(0, 8), (1, 4), (2, 16)]
    assert machine.numa_nodes[2].distances == (14, 24, 10)
    assert (format_id_list(machine.offline), format_id_list(machine.memory_only)) == ("4", "2")
    assert [format_id_list(cache) for cache in machine.hardware.l3_caches] == ["0,2", "1,3"]


def test_a_machine_without_numa_and_l3_caches_has_one_numa_node() -> None:
    """Older programs print no NODE on such a machine, and languages have their own word for yes."""
    lscpu = "CPU SOCKET CORE L1d:L1i:L2 ONLINE\n0   0      0    0:0:0      да\n1   1      1    1:1:1      да\n"
    machine = read_pasted_machine(f"{lscpu}available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 1024 MB\n").machine
    assert [(core.socket, core.numa_node, core.l3_cache) for core in machine.cores] == [(0, 0, None), (1, 0, None)]


@pytest.mark.parametrize(
    "text",
    [
        f"[root@host ~]# (lscpu -e; numactl -H)\n{LSCPU}{NUMACTL}[root@host ~]#\n",
        f"me@host:~$ ( sudo lscpu -e; numactl -H )\n{LSCPU}{NUMACTL}me@host:~$ \n",
    ],
)
def test_lines_with_a_prompt_are_skipped(text: str) -> None:
    assert read_pasted_machine(text) == read_pasted_machine(LSCPU + NUMACTL)


def test_a_firmware_without_distances_leaves_none() -> None:
    numactl = NUMACTL.partition("node distances:")[0]
    pasted = read_pasted_machine(f"{LSCPU}{numactl}No distance information available.\n")
    assert pasted == read_pasted_machine(LSCPU + numactl)
    assert pasted.machine.numa_nodes[0].distances == ()


def test_a_word_of_another_language_for_no_is_read_beside_dashes() -> None:
    pasted = read_pasted_machine(LSCPU.replace(" no ", "нет ") + NUMACTL)
    assert format_id_list(pasted.machine.offline) == "4"


def test_lines_of_devices_add_them() -> None:
    pasted = read_pasted_machine(f"{LSCPU}{NUMACTL}device:nvidia.com/gpu@0=1,1=1 dra:a.com/b@2=1\n")
    assert [(device.resource, device.numa_nodes) for device in pasted.devices] == [
        ("nvidia.com/gpu", (0,)),
        ("nvidia.com/gpu", (1,)),
    ]
    assert [device.numa_nodes for device in pasted.claimable] == [(2,)]


WRONG = [
    (LSCPU, "no size of a NUMA node; run numactl -H"),
    (NUMACTL, "no online CPU of lscpu -e"),
    (LSCPU.replace(" CORE", " BOOK") + NUMACTL, "line 1: the heading has no CORE"),
    (LSCPU.partition("\n")[2] + NUMACTL, "line 1: a row of lscpu before its heading"),
    (LSCPU + LSCPU + NUMACTL, "line 7: a second heading"),
    (LSCPU + NUMACTL + NUMACTL, "line 23: a second list of CPUs of node 0"),
    (LSCPU.replace(" 1200.000\n", "\n", 1) + NUMACTL, "line 2: 8 columns; the heading has 9"),
    (LSCPU.replace("  1    1      1", "  1    1      x") + NUMACTL, "line 3: SOCKET is 'x'"),
    (LSCPU.replace("  1    1      1", "  1    1      -") + NUMACTL, "line 3: SOCKET of CPU 1 is -, so lscpu does not"),
    (LSCPU.replace("  1    1      1    1", "  1    1      1    -") + NUMACTL, "line 3: CORE of CPU 1 is -, so lscpu"),
    (LSCPU.replace("  1    1  ", "  1    -  ") + NUMACTL, "line 3: NODE of CPU 1 is -, so lscpu does not know it"),
    (LSCPU.replace("  2    0", "  0    0") + NUMACTL, "lscpu has CPU 0 twice"),
    (LSCPU.replace("  2    0", "  2    1") + NUMACTL, "core 0 of lscpu has CPUs on two NUMA nodes|by numactl"),
    (LSCPU + NUMACTL.replace("cpus: 0 2", "cpus: 0"), "node 0 has CPUs 0,2 by lscpu and 0 by numactl"),
    (LSCPU + NUMACTL.replace("cpus: 0 2", "cpus: 0 b"), "line 8: 'b' is no CPU"),
    (LSCPU + NUMACTL.replace("8192 MB", "<not available>"), "line 9: the size of node 0"),
    (LSCPU + NUMACTL.replace("node 1 size: 4096 MB\n", ""), "lscpu has CPUs on node 1, and numactl has no size"),
    (LSCPU + NUMACTL.replace("  1:  21  10  24\n", ""), "node 1 has 0 distances; it needs 3"),
    (LSCPU + NUMACTL.replace("14  24  10", "14  24"), "node 2 has 2 distances; it needs 3"),
    (LSCPU + NUMACTL + "  7:  10\n", "distances of node 7"),
    (LSCPU + NUMACTL + "device:a.com/b@9=1\n", "a NUMA node that numactl does not have"),
    (LSCPU + NUMACTL + "device:b@0=1\n", "is not device:DOMAIN/NAME"),
    (LSCPU + NUMACTL + "hugepages-2Mi:4\n", "line 22: 'hugepages-2Mi:4' is of neither lscpu -e nor numactl -H"),
    (LSCPU + "99999 0 0 0 0:0:0:0 yes 1 1 1\n" + NUMACTL, "line 7: CPU 99999 is outside 0 to 16383"),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_does_not_fit_together_is_said_with_its_line(text: str, words: str) -> None:
    with pytest.raises(InvalidPaste, match=words):
        read_pasted_machine(text)

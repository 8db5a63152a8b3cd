"""Machines that people have, by name: their shapes, and where the facts are published.

A shape has what is published and nothing else. Amounts of memory are those that a machine's own numactl prints where
somebody has published that; the kernel keeps some of what a vendor lists.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine by name. ``shape`` is a line of ``shape``'s grammar; ``sources`` are the addresses of its facts.

    ``open`` says what no source tells, and what the shape has in its place.
    """

    name: str
    what: str
    shape: str
    sources: tuple[str, ...]
    open: str = ""


def find_machine(name: str) -> KnownMachine | None:
    """The machine of this name, upper and lower case alike; None where there is none."""
    return next((machine for machine in MACHINES if machine.name.lower() == name.lower()), None)


def _rows(nodes: int, distance: "dict[tuple[int, int], int]") -> str:
    """The rows of a symmetric matrix of distances; a NUMA node is at 10 from itself."""
    pairs = {**distance, **{(b, a): value for (a, b), value in distance.items()}}
    return "/".join(
        ",".join("10" if node == other else str(pairs[node, other]) for other in range(nodes)) for node in range(nodes)
    )


def _grace_hopper() -> str:
    gpu = {(0, node): 80 for node in range(1, 9)}
    return _rows(9, {**gpu, **{(a, b): 255 for a in range(1, 9) for b in range(a + 1, 9)}})


def _grace_blackwell() -> str:
    """Two processors, then eight NUMA nodes for each of four GPUs. The first two GPUs are on the first processor."""
    gpu = {node: (node - 2) // 8 for node in range(2, 34)}
    return _rows(
        34,
        {
            (0, 1): 40,
            **{(cpu, node): 80 if of // 2 == cpu else 120 for cpu in (0, 1) for node, of in gpu.items()},
            **{(a, b): 11 if gpu[a] == gpu[b] else 40 for a in gpu for b in gpu if a < b},
        },
    )


_AWS_SIZES = "https://github.com/openshift/openshift-docs/blob/main/modules/rosa-sdpolicy-am-aws-compute-types.adoc"
_AWS_TOPOLOGY = "https://github.com/aws/aws-ofi-nccl/blob/master/topology"
_AZURE_TOPOLOGY = "https://github.com/Azure/azhpc-images/blob/master/topology"
_AZURE_SIZES = "https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated"
_MLPERF = "https://github.com/mlcommons/inference_results_v3.0/blob/main/closed/NVIDIA/systems"
_HWLOC = "https://github.com/open-mpi/hwloc/tree/master/tests/hwloc/linux"
_TENSORRT_BLOG = "https://github.com/NVIDIA/TensorRT-LLM/blob/main/docs/source/blogs/tech_blog"
_GPUS = "device:nvidia.com/gpu"

_NO_DISTANCES = "distances: 12 within a socket, 32 beyond"
_NO_CACHES = f"which cores share an L3 cache; {_NO_DISTANCES}"

MACHINES: tuple[KnownMachine, ...] = (
    KnownMachine(
        "p4d.24xlarge",
        "Amazon EC2, 8 A100",
        f"sockets:2 cores:24 threads:2 memory:576Gi {_GPUS}@0=4,1=4",
        (f"{_AWS_TOPOLOGY}/p4d-24xl-topo.xml", _AWS_SIZES),
        _NO_CACHES,
    ),
    KnownMachine(
        "p4de.24xlarge",
        "Amazon EC2, 8 A100 of 80 GB",
        f"sockets:2 cores:24 threads:2 memory:576Gi {_GPUS}@0=4,1=4",
        (f"{_AWS_TOPOLOGY}/p4de-24xl-topo.xml", _AWS_SIZES),
        _NO_CACHES,
    ),
    KnownMachine(
        "p5.48xlarge",
        "Amazon EC2, 8 H100",
        f"sockets:2 cores:48 threads:2 memory:1Ti {_GPUS}@0=4,1=4",
        (
            "https://github.com/pytorch/ci-infra/issues/696",
            "https://github.com/aws/aws-ofi-nccl/blob/8807ce1e084d4b507bdc954f8d8f3689e4e27aef/topology/p5.48xl-topo.xml",
            _AWS_SIZES,
        ),
        _NO_CACHES,
    ),
    KnownMachine(
        "p6-b200.48xlarge",
        "Amazon EC2, 8 B200",
        f"sockets:2 cores:48 threads:2 memory:1Ti {_GPUS}@0=4,1=4",
        ("https://github.com/pytorch/ci-infra/pull/652", _AWS_SIZES),
        f"how the 8 GPUs are divided among the 2 NUMA nodes, here evenly; {_NO_CACHES}",
    ),
    KnownMachine(
        "c5n.18xlarge",
        "Amazon EC2",
        "sockets:2 cores:18 threads:2 memory:94590Mi,94710Mi distances:10,21/21,10",
        ("https://github.com/awslabs/aws-c-s3/pull/403",),
        "which cores share an L3 cache",
    ),
    KnownMachine(
        "r8g.metal-48xl",
        "Amazon EC2, 2 Graviton4",
        "sockets:2 cores:96 memory:768Gi",
        (
            "https://github.com/aws/aws-graviton-getting-started/blob/main/README.md",
            "https://aws.amazon.com/ec2/instance-types/r8g/",
        ),
        _NO_DISTANCES,
    ),
    KnownMachine(
        "Standard_ND96asr_v4",
        "Azure, 8 A100",
        f"sockets:2 numa:2 cores:24 memory:225Gi {_GPUS}@0=2,1=2,2=2,3=2",
        (f"{_AZURE_TOPOLOGY}/ndv4-topo.xml", f"{_AZURE_SIZES}/nda100v4-series"),
        f"which NUMA nodes share a socket, here 0 with 1; {_NO_CACHES}",
    ),
    KnownMachine(
        "Standard_ND96isr_H100_v5",
        "Azure, 8 H100",
        f"sockets:2 cores:48 memory:950Gi {_GPUS}@0=4,1=4",
        (f"{_AZURE_TOPOLOGY}/ndv5-topo.xml", f"{_AZURE_SIZES}/ndh100v5-series"),
        _NO_CACHES,
    ),
    KnownMachine(
        "BM.GPU.A100-v2.8",
        "Oracle Cloud, 8 A100 of 80 GB, 2 EPYC",
        "sockets:2 numa:4 cores:16 threads:2 memory:256Gi",
        (
            "https://github.com/SlinkyProject/slurm-operator/issues/238",
            "https://docs.oracle.com/en-us/iaas/Content/Compute/References/computeshapes.htm",
        ),
        f"the NUMA nodes of the GPUs, which are left out: add {_GPUS}@NUMA=COUNT,...; {_NO_CACHES}",
    ),
    KnownMachine(
        "DGX-A100",
        "NVIDIA, 8 A100, 2 EPYC 7742 of 4 NUMA nodes each (NPS4)",
        f"sockets:2 numa:4 cores:16 threads:2 l3:4 memory:256Gi {_GPUS}@1=2,3=2,5=2,7=2",
        (
            "https://github.com/NVIDIA/nccl/issues/1505",
            f"{_MLPERF}/DGX-A100_A100-SXM-80GBx8_TRT.json",
            "https://github.com/rapidsai/dask-cuda/issues/1358",
        ),
        _NO_DISTANCES,
    ),
    KnownMachine(
        "DGX-H100",
        "NVIDIA, 8 H100, 2 Xeon 8480C",
        f"sockets:2 cores:56 threads:2 memory:1Ti {_GPUS}@0=4,1=4",
        ("https://github.com/vllm-project/vllm/issues/13855", f"{_MLPERF}/DGX-H100_H100-SXM-80GBx8_TRT.json"),
        _NO_DISTANCES,
    ),
    KnownMachine(
        "GH200",
        "NVIDIA Grace Hopper: the GPU's memory and 7 empty NUMA nodes for parts of it",
        f"cores:72 memory:490037Mi cpuless:97280Mi,7x0 distances:{_grace_hopper()} {_GPUS}@0=1",
        ("https://lore.kernel.org/r/20250106120659.359610-2-bfaccini@nvidia.com",),
    ),
    KnownMachine(
        "GB200",
        "NVIDIA Grace Blackwell, 2 processors and 4 GPUs: 34 NUMA nodes",
        "sockets:2 cores:72 memory:489935Mi,489795Mi "
        "cpuless:188416Mi,7x0,188416Mi,7x0,188416Mi,7x0,188416Mi,7x0 "
        f"distances:{_grace_blackwell()} {_GPUS}@0=2,1=2",
        (
            f"{_TENSORRT_BLOG}/blog8_Scaling_Expert_Parallelism_in_TensorRT-LLM_part2.md",
            "https://github.com/ishandhanani/srt-slurm/pull/164",
        ),
        "the rows of distances of NUMA nodes 10 to 33, here like those of 2 to 9",
    ),
    KnownMachine(
        "Aurora",
        "a node of Aurora: 2 Xeon Max 9470C whose HBM is memory of its own (flat mode)",
        "sockets:2 cores:52 threads:2 memory:515489Mi,515028Mi cpuless:2x64Gi "
        "distances:10,21,13,23/21,10,23,13/13,23,10,23/23,13,23,10",
        ("https://github.com/argonne-lcf/ALCFBeginnersGuide/blob/master/aurora/01_compilers.md",),
        "the NUMA nodes of the GPUs, which are left out",
    ),
    KnownMachine(
        "LUMI-G",
        "a node of LUMI-G: EPYC 7A53 of 4 NUMA nodes (NPS4), 4 MI250X of 2 dies each",
        "numa:4 cores:16 threads:2 l3:2 memory:128Gi device:amd.com/gpu@0=2,1=2,2=2,3=2",
        (
            "https://docs.lumi-supercomputer.eu/hardware/lumig/",
            "https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/distribution-binding/",
        ),
        _NO_DISTANCES,
    ),
    KnownMachine(
        "Alps-MI300A",
        "a node of Alps: 4 MI300A",
        "sockets:4 cores:24 threads:2 memory:128Gi device:amd.com/gpu@0=1,1=1,2=1,3=1",
        ("https://docs.cscs.ch/alps/hardware/",),
        f"how many NUMA nodes a processor has, here 1; {_NO_CACHES}",
    ),
    KnownMachine(
        "EPYC-7742-NPS4",
        "2 EPYC 7742 of 4 NUMA nodes each, a node of Eiger",
        "sockets:2 numa:4 cores:16 threads:2 l3:4 memory:32Gi",
        ("https://docs.cscs.ch/alps/hardware/",),
        _NO_DISTANCES,
    ),
    KnownMachine(
        "Threadripper-3960X-NPS4",
        "4 NUMA nodes, of which 2 have no memory",
        "numa:4 cores:6 threads:2 memory:0,64307Mi,64472Mi,0 distances:10,12,12,12/12,10,12,12/12,12,10,12/12,12,12,10",
        ("https://github.com/numactl/numactl/issues/165",),
        "which cores share an L3 cache",
    ),
    KnownMachine(
        "Xeon-56c-SNC4",
        "2 Xeons of 56 cores and 4 NUMA nodes each (SNC4), with one L3 cache a socket",
        "sockets:2 numa:4 cores:14 threads:2 l3:socket memory:31Gi",
        ("https://github.com/gramineproject/gramine/pull/530",),
        _NO_DISTANCES,
    ),
    KnownMachine(
        "Xeon-E7-4870-interleaved",
        "4 Xeons E7-4870 whose firmware deals CPUs out to NUMA nodes in turn",
        "sockets:4 cores:10 numbering:interleaved memory:137425154048,3x128Gi distances:20,20",
        (f"{_HWLOC}/40intel64-4n10c%2Bpci-conflicts.tar.bz2",),
    ),
    KnownMachine(
        "Core-i7-1370P",
        "6 cores of 2 threads and 8 cores of 1",
        "cores:6 threads:2 ecores:8 numbering:adjacent memory:33269227520",
        (f"{_HWLOC}/20em64t-hybrid-1p6c2t%2B2ca4co1t.tar.bz2",),
    ),
)

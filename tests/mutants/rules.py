"""The list of mutants, file by file. Each breaks one rule; the suite must notice every one.

A mutant names a text of today's source: whoever changes a rule finds its mutants here and keeps them in step.
"""

from collections.abc import Iterator

from tests.mutants.mutant import Mutant

# What replay then gets wrong, the text of the rule, and the text that breaks it.
_BROKEN: dict[str, list[tuple[str, str, str]]] = {
    "qos.py": [
        (
            "the class that the pod's status says is ignored",
            "return pod.qos_class or computed_qos_class(pod, gates)",
            "return computed_qos_class(pod, gates)",
        ),
        (
            "limits above requests leave a pod Guaranteed",
            "if limited and requests == limits else",
            "if limited else",
        ),
        (
            "one container with limits makes the pod Guaranteed",
            "limited = all(_has_both(each) for each in units)",
            "limited = any(_has_both(each) for each in units)",
        ),
        (
            "a limit of CPUs alone makes a container Guaranteed",
            "resources.limits.get(CPU, 0) > 0 and resources.limits.get(MEMORY, 0) > 0",
            "resources.limits.get(CPU, 0) > 0",
        ),
        (
            "pod-level resources count where their gate is off",
            "whole = pod.resources if gates.pod_level_resources else None",
            "whole = pod.resources",
        ),
        (
            "pod-level resources do not count for the class",
            "whole = pod.resources if gates.pod_level_resources else None",
            "whole = None",
        ),
        (
            "pod-level limits of CPUs alone make a pod Guaranteed",
            "if whole is None else not whole.limits or _has_both(whole)",
            "if whole is None else True",
        ),
        ("huge pages are not the Memory Manager's", " or resource.startswith(HUGEPAGES_PREFIX)", ""),
        (
            "a pod with pod-level resources is pinned by managers that cannot serve it",
            "return gates.skips_pod_level_resources and has_pod_level_resources(pod)",
            "return False",
        ),
        (
            "pod-level managers act on pods without pod-level resources",
            "return gates.pod_level_resource_managers and has_pod_level_resources(pod)",
            "return gates.pod_level_resource_managers",
        ),
        (
            "a container under pod-level managers needs no request equal to its limit",
            "requests[name] == limits.get(name, 0)",
            "True",
        ),
        (
            "a container under pod-level managers needs whole CPUs only, no memory",
            "for name in (CPU, MEMORY))",
            "for name in (CPU,))",
        ),
        ("a request of zero counts for the class", "and quantity > 0:", "and quantity >= 0:"),
    ],
    "gates.py": [
        ("pod-level resources are off in v1.34", "minor >= 34)", "minor >= 35)"),
        (
            "pod-level managers need no pod-level resources",
            "managers = pod_level and minor >= 36",
            "managers = minor >= 36",
        ),
        ("the gate of pod-level managers counts before v1.36", "pod_level and minor >= 36 and", "pod_level and"),
        ("v1.36 makes device hints of all NUMA nodes", "device_nodes_only=minor >= 36", "device_nodes_only=False"),
        ("v1.35 makes device hints of device nodes only", "device_nodes_only=minor >= 36", "device_nodes_only=True"),
        ("alpha options need no gate", 'CPUManagerPolicyAlphaOptions", False', 'CPUManagerPolicyAlphaOptions", True'),
        ("beta options need a gate", 'CPUManagerPolicyBetaOptions", True', 'CPUManagerPolicyBetaOptions", False'),
        (
            "distribute-cpus-across-numa is stable",
            'DISTRIBUTE_ACROSS_NUMA: "beta" if minor >= 33 else "alpha"',
            'DISTRIBUTE_ACROSS_NUMA: "stable"',
        ),
        (
            "strict-cpu-reservation is beta in v1.35",
            'levels[STRICT_RESERVATION] = "stable" if minor >= 35',
            'levels[STRICT_RESERVATION] = "stable" if minor >= 36',
        ),
        (
            "prefer-align-cpus-by-uncorecache is beta in v1.36",
            '"stable" if minor >= 36 else "beta" if minor >= 34 else "alpha"',
            '"beta" if minor >= 34 else "alpha"',
        ),
        ("a version that is not known passes for modelled", "if told != minor:", "if False:"),
        ("a version beyond the known ones has rules of its own", "NEWEST_MINOR)\n", "99)\n"),
        ("a version before the known ones has rules of its own", "max(told, OLDEST_MINOR)", "told"),
        ("pod-level resources exist before v1.32", "pod_level = minor >= 32 and", "pod_level = True and"),
        ("pod-level resources are skipped before v1.34", "else minor >= 34 and pod_level", "else pod_level"),
        ("pod-level resources are not skipped in v1.34", "else minor >= 34 and pod_level", "else False"),
        (
            "pod-level resources are not skipped since v1.36 where their gate is off",
            "skips_pod_level_resources=not managers if minor >= 36 else",
            "skips_pod_level_resources=not managers and pod_level if minor >= 36 else",
        ),
        (
            "blank pod-level resources count in v1.37",
            "blank_pod_resources_count=minor < 37 or not",
            "blank_pod_resources_count=True or not",
        ),
        (
            "blank pod-level resources do not count before v1.37",
            "blank_pod_resources_count=minor < 37 or not",
            "blank_pod_resources_count=not",
        ),
        ("gate MemoryManager counts in v1.32", "memory_manager=minor >= 32 or", "memory_manager="),
        ("gate MemoryManager never counts", "memory_manager=minor >= 32 or", "memory_manager=True or"),
        (
            "v1.31 knows of the Memory Manager's BestEffort",
            "has_best_effort_memory=minor >= 32",
            "has_best_effort_memory=True",
        ),
        ("v1.31 refuses mixed groups", "refuses_mixed_groups=minor >= 32", "refuses_mixed_groups=True"),
        ("v1.32 mixes groups", "refuses_mixed_groups=minor >= 32", "refuses_mixed_groups=minor >= 33"),
        ("v1.36 skips containers without memory", "skips_blank_memory=minor >= 37", "skips_blank_memory=True"),
        ("v1.37 serves containers without memory", "skips_blank_memory=minor >= 37", "skips_blank_memory=False"),
        ("v1.31 reads CPUs under policy none", "discovers_cpus_always=minor >= 32", "discovers_cpus_always=True"),
        ("v1.31 tells that no core is free", "tells_no_free_cores=minor >= 32", "tells_no_free_cores=True"),
        (
            "v1.32 takes no free core for no multiple",
            "tells_no_free_cores=minor >= 32",
            "tells_no_free_cores=minor >= 33",
        ),
        ("v1.36 does not check whole cores again", "keeps_held_cpus=minor >= 37", "keeps_held_cpus=True"),
        ("v1.37 checks whole cores again", "keeps_held_cpus=minor >= 37", "keeps_held_cpus=False"),
        (
            "v1.33 takes part of a cache's core",
            "cache_takes_started_cores=minor >= 34",
            "cache_takes_started_cores=True",
        ),
        (
            "v1.34 takes whole cores of a cache alone",
            "cache_takes_started_cores=minor >= 34",
            "cache_takes_started_cores=minor >= 35",
        ),
        ("v1.36 bounds its distribution", "bounded_distribution=minor >= 37", "bounded_distribution=True"),
        ("v1.37 does not bound its distribution", "bounded_distribution=minor >= 37", "bounded_distribution=False"),
        ("v1.36 judges each container by itself", "qos_by_container=minor >= 37", "qos_by_container=True"),
        ("v1.37 judges containers together", "qos_by_container=minor >= 37", "qos_by_container=False"),
        (
            "the Topology Manager's beta options need a gate",
            'TopologyManagerPolicyBetaOptions", True',
            'TopologyManagerPolicyBetaOptions", False',
        ),
        ("gate CPUManagerPolicyOptions counts in v1.33", "cpu_options=minor >= 33 or", "cpu_options="),
        ("gate CPUManagerPolicyOptions never counts", "cpu_options=minor >= 33 or", "cpu_options=True or"),
        (
            "gate TopologyManagerPolicyOptions never counts",
            "topology_options=gates.get(TOPOLOGY_POLICY_OPTIONS, True)",
            "topology_options=True",
        ),
        ("v1.32 words levels as v1.33 does", "lower_case_levels=minor >= 33", "lower_case_levels=True"),
        (
            "max-allowable-numa-nodes exists in v1.30",
            "    if minor >= 31:\n        levels[MAX_NUMA_NODES]",
            "    if True:\n        levels[MAX_NUMA_NODES]",
        ),
        (
            "distribute-cpus-across-cores exists in v1.30",
            "    if minor >= 31:\n        levels[DISTRIBUTE_ACROSS_CORES]",
            "    if True:\n        levels[DISTRIBUTE_ACROSS_CORES]",
        ),
        (
            "strict-cpu-reservation exists in v1.31",
            "    if minor >= 32:\n        levels[STRICT_RESERVATION]",
            "    if True:\n        levels[STRICT_RESERVATION]",
        ),
        (
            "max-allowable-numa-nodes is beta in v1.35",
            '"stable" if minor >= 35 else "beta"\n    return levels',
            '"beta"\n    return levels',
        ),
        ("prefer-closest-numa-nodes is stable in v1.31", '"stable" if minor >= 32 else "beta"', '"stable"'),
        ("sidecars that are off pass for modelled", " or name == _SIDECARS", ""),
        ("v1.32 resizes in place", "minor >= 33 and gates.get(RESIZE, True)", "gates.get(RESIZE, True)"),
        ("gate InPlacePodVerticalScaling never counts", "gates.get(RESIZE, True)", "True"),
        ("gate InPlacePodVerticalScaling counts in v1.35", "resize = minor >= 35 or (", "resize = minor >= 36 or ("),
        (
            "v1.33 has a gate for exclusive memory",
            "RESIZE_EXCLUSIVE_MEMORY if minor >= 34 else RESIZE_EXCLUSIVE_CPUS",
            "RESIZE_EXCLUSIVE_MEMORY",
        ),
        (
            "exclusive CPUs are resized without their gate",
            "gates.get(RESIZE_EXCLUSIVE_CPUS, False)",
            "gates.get(RESIZE_EXCLUSIVE_CPUS, True)",
        ),
        (
            "exclusive memory is resized without its gate",
            "gates.get(exclusive_memory, False)",
            "gates.get(exclusive_memory, True)",
        ),
        (
            "pod-level resources are resized by default in v1.35",
            "gates.get(RESIZE_POD_LEVEL, minor >= 36)",
            "gates.get(RESIZE_POD_LEVEL, True)",
        ),
        (
            "pod-level resources are resized in v1.34",
            "pod_level and minor >= 35 and gates.get(RESIZE_POD_LEVEL",
            "pod_level and gates.get(RESIZE_POD_LEVEL",
        ),
        (
            "pod-level resources are resized where they do not count",
            "resize_pod_level=pod_level and",
            "resize_pod_level=",
        ),
        (
            "v1.35 resizes init containers",
            "(minor >= 36 and gates.get(RESIZE_INIT_CONTAINERS, True))",
            "gates.get(RESIZE_INIT_CONTAINERS, True)",
        ),
        (
            "the gate of init containers counts in v1.37",
            "resize_init_containers=minor >= 37 or",
            "resize_init_containers=False or",
        ),
        ("v1.33 judges a resize by its resource", "resize_judges_resource=minor >= 34", "resize_judges_resource=True"),
        ("v1.34 judges any resize", "resize_judges_resource=minor >= 34", "resize_judges_resource=minor >= 35"),
        ("v1.36 calls infeasible what is too large", "resize_checks_node=minor < 36", "resize_checks_node=True"),
        ("v1.35 puts off what is too large", "resize_checks_node=minor < 36", "resize_checks_node=minor < 35"),
    ],
    "resize.py": [
        ("what init containers held must be shown", "        if not each.init:\n", "        if True:\n"),
        ("a state must not show memory that a pod holds", "block.resource for block in each.memory", ""),
        ("a state must not show devices that a pod holds", "devices.resource for devices in each.devices", ""),
        ("a state must not show CPUs that a pod holds", "*([qos.CPU] if each.cpus else [])", ""),
        ("a resize that asks for nothing new is asked", "if not _is_resized(allocated, desired, gates):", "if False:"),
        ("kubelets that resize nothing answer", "if not gates.resize:", "if False:"),
        ("nothing is infeasible", "    if infeasible:\n", "    if False:\n"),
        (
            "a kubelet that breaks puts a resize off",
            "if verdict.reason in _BREAKS:",
            "if False:",
        ),
        (
            "a resize that is put off carries the prefix of refused pods",
            "verdict.message.removeprefix(MESSAGE_PREFIX)",
            "verdict.message",
        ),
        (
            "a pod that the managers refuse loses what it holds",
            "removeprefix(MESSAGE_PREFIX), verdict, remarks), node",
            "removeprefix(MESSAGE_PREFIX), verdict, remarks), after",
        ),
        (
            "what the managers gave is taken back where totals lack",
            "lacking, verdict, verdict.unmodelled), after",
            "lacking, verdict, verdict.unmodelled), node",
        ),
        ("totals are not asked", 'Resized(DEFERRED if lacking else "", lacking', 'Resized("", ""'),
        (
            "a pod's own resources are never resized",
            "if gates.resize_pod_level and allocated",
            "if False and allocated",
        ),
        ("a pod's own resources are always resized", "if gates.resize_pod_level and allocated", "if allocated"),
        (
            "init containers are never resized",
            "container.kind is not ContainerKind.INIT or gates.resize_init_containers",
            "container.kind is not ContainerKind.INIT",
        ),
        (
            "init containers are always resized",
            "container.kind is not ContainerKind.INIT or gates.resize_init_containers",
            "True",
        ),
        (
            "sidecars are resized as init containers are",
            "container.kind is not ContainerKind.INIT or",
            "container.kind is ContainerKind.APP or",
        ),
        ("burstable pods are kept from a resize", "if qos.is_guaranteed(desired, gates):", "if True:"),
        ("no static policy minds a resize", "if _is_judged(resource, allocated, desired, gates):", "if False:"),
        (
            "the CPU Manager minds under policy none",
            'if node.kubelet.cpu_manager_policy == "static" and not gates.resize_exclusive_cpus:',
            "if not gates.resize_exclusive_cpus:",
        ),
        (
            "the gate of exclusive CPUs does not count",
            ' == "static" and not gates.resize_exclusive_cpus:',
            ' == "static":',
        ),
        (
            "the Memory Manager minds under policy None",
            'if node.kubelet.memory_manager_policy == "Static" and not gates.resize_exclusive_memory:',
            "if not gates.resize_exclusive_memory:",
        ),
        (
            "the gate of exclusive memory does not count",
            ' == "Static" and not gates.resize_exclusive_memory:',
            ' == "Static":',
        ),
        ("v1.33 minds only its own resource", "    if not gates.resize_judges_resource:\n", "    if False:\n"),
        ("a static policy minds every resize", "    if not gates.resize_judges_resource:\n", "    if True:\n"),
        ("v1.33 words policies as v1.34 does", "quoted = gates.resize_judges_resource", "quoted = True"),
        ("the empty node is asked since v1.36", "totals) if gates.resize_checks_node else", "totals) if True else"),
        ("the empty node's thresholds count", "{**totals.allocatable, **totals.unreserved}", "totals.allocatable"),
        ("the empty node lacks CPUs before memory", "in (qos.MEMORY, qos.CPU)", "in (qos.CPU, qos.MEMORY)"),
        (
            "totals lack memory before CPUs",
            "in (qos.CPU, qos.MEMORY):\n        amounts",
            "in (qos.MEMORY, qos.CPU):\n        amounts",
        ),
        ("what others use does not count", "amounts[0] > amounts[2] - amounts[1]", "amounts[0] > amounts[2]"),
        (
            "a pod fits only with room to spare",
            "amounts[0] > amounts[2] - amounts[1]",
            "amounts[0] >= amounts[2] - amounts[1]",
        ),
        ("what is not asked must fit", "if amounts[0] and amounts[2]", "if amounts[2]"),
        ("CPUs are told whole", "return amount if resource == qos.CPU else value(amount)", "return value(amount)"),
        (
            "alpha gates are not remarked on",
            "if not (gates.resize_exclusive_cpus or gates.resize_exclusive_memory):",
            "if True:",
        ),
        ("an alpha kubelet's rules pass for known", "if node.kubelet.feature_gates.get(RESIZE, False):", "if False:"),
    ],
    "options.py": [
        ("a switch cannot be written as t", '{"1", "t", "T",', '{"1", "T",'),
        ("a switch cannot be written as 0", '{"0", "f",', '{"f",'),
        ("a map is printed in its own order, not sorted", "for name in sorted(options)", "for name in options"),
    ],
    "errors.py": [
        ("the message lacks the kubelet's prefix", '"Pod was rejected: "', '"Pod rejected: "'),
        ("a NUMA id beyond 63 is not noticed", "    if beyond:\n", "    if False:\n"),
        ("a refusal for topology has another reason", '"TopologyAffinityError"', '"TopologyError"'),
        ("a refusal for whole cores has no reason of its own", '"SMTAlignmentError"', '"UnexpectedAdmissionError"'),
        (
            "a refusal for an empty shared pool has no reason of its own",
            '"EmptyPodSharedPoolError"',
            '"UnexpectedAdmissionError"',
        ),
        (
            "a manager's error stands alone in the message",
            'f"Allocate failed due to {error}, which is',
            'f"{error}, is',
        ),
    ],
    "container_manager.py": [
        ("one NUMA node too many is accepted", "> options.max_numa_nodes:", "> options.max_numa_nodes + 1:"),
        ("as many NUMA nodes as allowed are refused", "> options.max_numa_nodes:", ">= options.max_numa_nodes:"),
        (
            "the Topology Manager's options are read under policy none",
            "if policy == policies.NONE:",
            "if policy == policies.NONE and not settings.topology_manager_policy_options:",
        ),
        ("a kubelet starts without the distances it needs", "options.prefer_closest and any(", "False and any("),
        ("an unknown topology policy is accepted", "if policy not in policies.POLICIES:", "if not policy:"),
        (
            "an unknown scope is accepted",
            'if settings.topology_manager_scope not in ("container", "pod"):',
            "if not settings.topology_manager_scope:",
        ),
        (
            "distances count without prefer-closest-numa-nodes",
            "for node in machine.numa_nodes} if options.prefer_closest else None",
            "for node in machine.numa_nodes}",
        ),
        (
            "prefer-closest-numa-nodes is without effect",
            "for node in machine.numa_nodes} if options.prefer_closest else None",
            "for node in machine.numa_nodes} if False else None",
        ),
        ("CPU policy none accepts options", "if options:", "if False:"),
        ("an unknown CPU policy is none", '    if policy != "static" or', "    if not policy or"),
        (
            "more memory reserved than there is passes for modelled",
            "if memory is None or not memory.over_reserved:",
            "if True:",
        ),
        (
            "ids with gaps beside prefer-closest-numa-nodes pass for modelled",
            "if not has_gaps(numa.distances):",
            "if True:",
        ),
        ("options need no gate of the CPU Manager", "if options and not gates.cpu_options:", "if False:"),
        ("options need no gate of the Topology Manager", "if options and not gates.topology_options:", "if False:"),
    ],
    "admission.py": [
        ("amounts that no kubelet counts alike pass for known", "if abs(amount) >= UNCOUNTED}", "if False}"),
        ("100Ti pass for known", "UNCOUNTED = 1000 << 46", "UNCOUNTED = 1000 << 47"),
        ("a pod's own amounts pass for known", "lists += [pod.resources] if pod.resources else []", "pass"),
        ("a pod of the same name and another uid passes for the same pod", "(pod.uid == uid or not pod.uid", "(True"),
        (
            "a refused pod keeps its record",
            " if held else node.pods\n        return _rejected(",
            "; pods = node.pods\n        return _rejected(",
        ),
        ("devices of other pods are free", "(device for each in others for device in each.devices),", "(),"),
        (
            "the shared pool that the kubelet keeps is worked out anew",
            "_pool_left_by(policy, node.pods) if node.cpu_pool is None else node.cpu_pool",
            "_pool_left_by(policy, node.pods)",
        ),
        (
            "CPUs that containers hold are in the shared pool",
            "            pool &= ~container.cpus\n",
            "            pass\n",
        ),
        ("CPUs that a pod holds as a whole are in the shared pool", "        pool &= ~pod.cpus\n", ""),
        (
            "the book that the kubelet keeps is worked out anew",
            "if node.memory is not None:\n        book",
            "if False:\n        book",
        ),
        (
            "memory that a pod holds as a whole is reserved container by container",
            "for block in pod.memory or (block for each in pod.containers for block in each.memory):",
            "for block in (block for each in pod.containers for block in each.memory):",
        ),
        (
            "a container that was served without memory is served anew under pod-level managers",
            "blank = kubelet.gates.pod_level_resource_managers",
            "blank = False",
        ),
        (
            "containers without memory of their own pass for served",
            "blank = kubelet.gates.pod_level_resource_managers",
            "blank = True",
        ),
        (
            "a pod that ends leaves its memory and CPUs reserved",
            "            providers.remove_pod()\n            node",
            "            node",
        ),
        (
            "CPUs that only the kubelet's pool tells are forgotten",
            "        pool = providers.cpu.pool\n    if",
            "        pool = None\n    if",
        ),
        (
            "init containers pass for app containers",
            "                container.kind is ContainerKind.INIT,\n",
            "                False,\n",
        ),
    ],
    "fast_path/admission.py": [
        (
            "an answer to one pod is the answer to all",
            "containers = tuple((each.name, each.kind, _asked(each.resources)) for each in pod.containers)",
            "containers = ()",
        ),
        (
            "a fit does not count free cores for full-pcpus-only",
            "(count % policy.topology.cpus_per_core or count > physical)",
            "count % policy.topology.cpus_per_core",
        ),
        (
            "a fit takes CPUs that are spread for packed ones",
            "if options.distribute_across_numa or options.align_by_socket:",
            "if options.align_by_socket:",
        ),
        (
            "a fit does not know sockets",
            "if options.distribute_across_numa or options.align_by_socket:",
            "if options.distribute_across_numa:",
        ),
        (
            "a fit takes memory from a node of a group",
            "            if enough and grouped:\n",
            "            if False:\n",
        ),
        (
            "a fit under policy none knows where memory comes from",
            "return None if self.kubelet.memory and self.need.memory else True",
            "return True",
        ),
        (
            "a fit under best-effort is refused where no NUMA node holds it",
            "return True if common else None if policy == BEST_EFFORT else False",
            "return bool(common)",
        ),
        ("a fit needs single NUMA nodes though none would do", "if not preferred or self.kubelet", "if self.kubelet"),
        (
            "too few devices pass in a fit where they are on no NUMA node",
            "if space.nodes else Precheck.REFUSED\n",
            "if space.nodes else Precheck.NOT_ALIGNED\n",
        ),
        (
            "a fit takes the highest of the NUMA nodes that hold a pod",
            "lowest = common & -common\n",
            "lowest = 1 << common.bit_length() - 1\n",
        ),
        (
            "a fit aligns a container that asks for nothing where another stands",
            'if not aligned or (len(pod.containers) > 1 and settings.topology_manager_scope == "container"):',
            "if not aligned:",
        ),
        ("a fit has an affinity to the only NUMA node", "lowest if aligned and lowest != every else 0", "lowest"),
        (
            "a fit does not know prefer-most-allocated-numa-node",
            "if aligned and kubelet.prefer_most_allocated:",
            "if False:",
        ),
        (
            "a fit takes memory without preference for the reason of a refusal",
            "                return {}\n",
            "                pass\n",
        ),
        (
            "a fit takes memory in groups for memory without preference",
            "            if any(page.grouped for page in pages):\n",
            "            if False:\n",
        ),
        (
            "a fit does not tell a NUMA node that lacks one resource from one that lacks another",
            "tuple([name for name, nodes in merged.items() if not nodes] or merged)",
            "tuple(merged)",
        ),
    ],
    "fast_path/capacity.py": [
        (
            "a pod that a node holds is told by what is free",
            "return name in self._names and any(",
            "return False and any(",
        ),
        ("reserved CPUs pass for free in a fit", "available = pool & ~policy.reserved\n", "available = pool\n"),
        ("devices that are taken pass for free in a fit", "if name not in taken:", "if True:"),
        ("unhealthy devices pass for free in a fit", "        if device.healthy:\n", "        if True:\n"),
        (
            "a resource without a healthy device passes for none in a fit",
            "Precheck.REFUSED if offered or taken else Precheck.NOT_ALIGNED",
            "Precheck.NOT_ALIGNED",
        ),
        (
            "a fit knows which CPUs are taken where cores are uneven",
            "certain = policy.topology.is_even and (",
            "certain = (",
        ),
        (
            "a fit knows which CPUs are taken where the kubelet's pool holds some that a pod has",
            "(node.cpu_pool is None or not available & held_cpus(node))",
            "True",
        ),
    ],
    "identity_cache.py": [
        (
            "what was free on a node is kept longer than its state",
            'self._known.pop(getattr(reference, "key", 0), None)',
            "pass",
        ),
    ],
    "topology/options.py": [
        (
            "a limit of 8 NUMA nodes is too few",
            "if int(text) < DEFAULT_MAX_NUMA_NODES:",
            "if int(text) <= DEFAULT_MAX_NUMA_NODES:",
        ),
        ("a limit below 8 NUMA nodes is accepted", "if int(text) < DEFAULT_MAX_NUMA_NODES:", "if int(text) < 0:"),
        (
            "unknown options of the Topology Manager are accepted",
            'raise InvalidOption(f"unknown Topology Manager Policy option: {quoted(name)}")',
            "return",
        ),
        ("prefer-most-allocated-numa-node needs no gate", " and gates.topology_alpha_options:", ":"),
        ("9 NUMA nodes are allowed without the option", "DEFAULT_MAX_NUMA_NODES = 8", "DEFAULT_MAX_NUMA_NODES = 9"),
    ],
    "topology/policies.py": [
        ("best-effort refuses", "hint.preferred or policy == BEST_EFFORT", "hint.preferred"),
        ("restricted admits what is not preferred", "hint.preferred or policy == BEST_EFFORT", "True"),
        (
            "single-numa-node takes several NUMA nodes",
            "hint = merge_single(info, offers, tie_break)",
            "hint = merge(info, offers)",
        ),
        (
            "best-effort and restricted take single NUMA nodes only",
            "hint = merge(info, offers)",
            "hint = merge_single(info, offers)",
        ),
    ],
    "scopes.py": [
        (
            "a refused pod keeps the memory it had been given",
            "            self.memory.remove_pod()",
            "            pass",
        ),
        ("a refused pod keeps the CPUs it had been given", "            self.cpu.remove_pod()", "            pass"),
        ("policy none asks for hints", "if self.policy == NONE:", "if False:"),
        ("scope pod is scope container", 'elif scope == "container":', "elif True:"),
        ("scope container is scope pod", 'elif scope == "container":', "elif False:"),
        (
            "containers after a refused one are still served",
            "            if admission.rejection:\n                return\n\n    def _admit_pod",
            "            if False:\n                return\n\n    def _admit_pod",
        ),
        (
            "scope pod serves containers after one that failed",
            "            if admission.rejection:\n                return\n\n    def _allocate(",
            "            if False:\n                return\n\n    def _allocate(",
        ),
        (
            "scope pod steers the first container only",
            "(each.name for each in pod.containers), affinity",
            "(each.name for each in pod.containers[:1]), affinity",
        ),
        (
            "pod-level resources are refused by a container-level manager in the usual words",
            "if qos.uses_pod_level_managers(pod, self.gates)\n                    else",
            "if False\n                    else",
        ),
        (
            "pod-level resources are refused by a pod-level manager in the usual words",
            "                if whole_pod\n",
            "                if False\n",
        ),
        ("pod-level resources are served container by container", "        if whole_pod:\n", "        if False:\n"),
        (
            "devices are taken anywhere",
            "providers.devices.allocate(pod, container, affinity.mask)",
            "providers.devices.allocate(pod, container, None)",
        ),
        (
            "CPUs are taken anywhere",
            "providers.cpu.allocate(pod, container, affinity.mask)",
            "providers.cpu.allocate(pod, container, None)",
        ),
        (
            "memory is taken anywhere",
            "providers.memory.allocate(pod, container, affinity)",
            "providers.memory.allocate(pod, container, NO_AFFINITY)",
        ),
        (
            "CPUs of a whole pod are taken anywhere",
            "providers.cpu.allocate_pod(pod, affinity.mask)",
            "providers.cpu.allocate_pod(pod, None)",
        ),
        (
            "memory of a whole pod is taken anywhere",
            "providers.memory.allocate_pod(pod, affinity)",
            "providers.memory.allocate_pod(pod, NO_AFFINITY)",
        ),
        (
            "prefer-most-allocated-numa-node needs no option",
            "            if self.prefer_most_allocated\n",
            "            if True\n",
        ),
        ("hints of the CPU Manager are not asked for", "self.cpu.hints(pod, container) if self.cpu else []", "[]"),
        (
            "hints of the Memory Manager are not asked for",
            "self.memory.hints(pod, container) if self.memory else []",
            "[]",
        ),
        (
            "a pod's hints of the Memory Manager are not asked for",
            "self.memory.pod_hints(pod) if self.memory else []",
            "[]",
        ),
        (
            "memory is given after CPUs have failed",
            "refused = providers.cpu.allocate(pod, container, affinity.mask)\n        if refused is None and providers",
            "refused = providers.cpu.allocate(pod, container, affinity.mask)\n        if providers",
        ),
    ],
    "topology/prefer_most_allocated_numa_node.py": [
        (
            "the emptiest NUMA node takes the pod",
            "        if _beats(node, winner, signals):",
            "        if _beats(winner, node, signals):",
        ),
        ("one signal is enough against another", " and all(each >= 0 for each in differences)", ""),
        (
            "of equally full NUMA nodes the highest takes the pod",
            "return any(each > 0 for each in differences) and",
            "return",
        ),
        ("a NUMA node's utilization is not told in whole steps", "* _MOST // allocatable", "* _MOST / allocatable"),
        ("a NUMA node is fuller than full", "min(assigned, allocatable) * _MOST", "assigned * _MOST"),
    ],
    "topology/hints.py": [
        (
            "a resource with just enough does not fit",
            "return self.gathered(mask) >= self.need",
            "return self.gathered(mask) > self.need",
        ),
        (
            "a device of several NUMA nodes counts only where a mask holds all of them",
            "for nodes, amount in self.groups if nodes & mask)",
            "for nodes, amount in self.groups if not nodes & ~mask)",
        ),
        ("a new group of NUMA nodes may have one node", "            and mask.bit_count() >= self.least\n", ""),
        (
            "align-by-socket prefers masks of more sockets too",
            "if nodes & mask) == self.count",
            "if nodes & mask) >= self.count",
        ),
        ("memory that is held is not preferred", "            self.width is None\n            or ", "            "),
        (
            "align-by-socket is without effect on preference",
            "or (self.sockets is not None and self.sockets.holds(mask))",
            "",
        ),
        (
            "single-numa-node takes masks that are not preferred",
            "if self.offers(1 << node) and self.prefers(1 << node))",
            "if self.offers(1 << node))",
        ),
        (
            "reusable CPUs and devices restrict no mask",
            "return Threshold(((nodes, 1),), 1)",
            "return Threshold(((nodes, 1),), 0)",
        ),
    ],
    "topology/merge.py": [
        ("a resource that is impossible does not count", "certain = Answer.IMPOSSIBLE not in offers", "certain = True"),
        (
            "without masks an impossible resource is admitted",
            "return Hint(info.nodes, certain)",
            "return Hint(info.nodes, True)",
        ),
        ("single-numa-node admits the impossible", "    if Answer.IMPOSSIBLE in offers:\n", "    if False:\n"),
        (
            "single-numa-node refuses where nothing needs alignment",
            "return Hint(None, preferred=True)",
            "return Hint(None, preferred=False)",
        ),
        ("a machine of one NUMA node has an affinity", "None if mask == info.nodes else mask", "mask"),
        (
            "single-numa-node takes the highest NUMA node",
            "mask = 1 << tie_break(common)",
            "mask = 1 << common.bit_length() - 1",
        ),
        (
            "single-numa-node takes any resource's masks",
            "common &= offer.preferred_nodes()",
            "common |= offer.preferred_nodes()",
        ),
        (
            "wider masks rank before narrower ones",
            "return lambda width: (width > wanted,",
            "return lambda width: (width < wanted,",
        ),
        (
            "masks rank by their distance to the wanted width alone",
            "return lambda width: (width > wanted,",
            "return lambda width: (False,",
        ),
        ("the widest mask not preferred wins", "abs(width - wanted))", "-abs(width - wanted))"),
        (
            "the narrowest need tells the wanted width",
            "key=width_rank(max(widths)))], info.distances), preferred=False)",
            "key=width_rank(min(widths)))], info.distances), preferred=False)",
        ),
        (
            "a wide machine's narrowest need tells the wanted width",
            "key=width_rank(max(widths)))\n    best",
            "key=width_rank(min(widths)))\n    best",
        ),
        (
            "one resource's preference makes the merged hint preferred",
            "if all(each.prefers(mask) for each in hints):",
            "if any(each.prefers(mask) for each in hints):",
        ),
        ("a closer mask wins over a narrower one", "if best and mask.bit_count() > best[0].bit_count():", "if False:"),
        (
            "resources that share no NUMA node are preferred",
            "    if not by_width:\n        return Hint(info.nodes, preferred=False)",
            "    if not by_width:\n        return Hint(info.nodes, preferred=True)",
        ),
        (
            "an impossible resource is preferred",
            "    if certain:\n        preferred = _common_preferred(",
            "    if True:\n        preferred = _common_preferred(",
        ),
        (
            "a wide machine prefers an impossible resource",
            "    if certain:\n        preferred = wide.common_preferred(",
            "    if True:\n        preferred = wide.common_preferred(",
        ),
        (
            "a merged hint need not be an intersection of the resources' masks",
            "if mask and reachable[mask]:",
            "if mask:",
        ),
        (
            "the smallest NUMA nodes tell the preferred width",
            "enumerate(sorted(amounts.values(), reverse=True))",
            "enumerate(sorted(amounts.values()))",
        ),
        (
            "the lowest mask passes for the narrowest",
            "return min(found, key=lambda mask: (mask.bit_count(), mask), default=None)",
            "return min(found, default=None)",
        ),
        ("tables let a new group have one node", "    if family.least > 1:\n", "    if False:\n"),
        (
            "tables count a device of several NUMA nodes where a mask holds all of them",
            "total + amount if mask & nodes else total",
            "total + amount if mask & nodes == nodes else total",
        ),
        (
            "a mask over NUMA ids with gaps is read as one without",
            "        return index\n",
            "        return index\n    if True:\n        return index\n",
        ),
    ],
    "topology/wide.py": [
        (
            "a wide machine's narrowest new group may have one node",
            "range(max(1, family.least, including.bit_count())",
            "range(max(1, including.bit_count())",
        ),
        (
            "a wide machine forgets the memory that is held",
            "named = {mask for each in hints for mask in each.masks}",
            "named: set[int] = set()",
        ),
        (
            "a wide machine prefers what one resource prefers",
            "if all(each.offers(mask) and each.prefers(mask) for each in hints)]",
            "if any(each.offers(mask) and each.prefers(mask) for each in hints)]",
        ),
        (
            "a wide machine's search forgets what resources prefer",
            "lambda mask: all(each.prefers(mask) for each in self.hints)",
            "lambda _: True",
        ),
        (
            "a wide machine forgets masks of one NUMA node",
            "found = list(alone) if width == 1 else []",
            "found: list[int] = []",
        ),
        (
            "a wide machine takes one resource's NUMA node for an intersection",
            "and all(_reaches(each, node) for each in hints)",
            "",
        ),
        ("a wide machine forgets groups that hold memory", "if mask.bit_count() > 1]", "if False]"),
        (
            "a wide machine takes masks of other sockets too",
            "yield self.universe & ~excluded_nodes,",
            "yield self.universe,",
        ),
    ],
    "topology/distances.py": [
        ("of equal masks the largest wins", "return min(masks)\n", "return max(masks)\n"),
        (
            "the farthest NUMA nodes win",
            "(total_distance(mask, distances), mask)",
            "(-total_distance(mask, distances), mask)",
        ),
        (
            "of equally close masks the largest wins",
            "(total_distance(mask, distances), mask)",
            "(total_distance(mask, distances), -mask)",
        ),
        ("a wide machine takes the widest mask", "width = min((mask.bit_count()", "width = max((mask.bit_count()"),
        ("a distance list that ends too early is no gap", "any(node >= len(row)", "all(node >= len(row)"),
        (
            "twins are as far from themselves as may be",
            "distances[one][one] == distances[other][other] and all(",
            "all(",
        ),
        ("twins are as far from each other as from the rest", "        if third not in {one, other}\n", ""),
        (
            "a spread forgets how far its classes are apart",
            "total + count * apart + inside[count]",
            "total + inside[count]",
        ),
        (
            "a spread forgets how far twins are from each other",
            "inside[count], (*spread",
            "count * inside[1], (*spread",
        ),
        ("a spread may leave more to the last classes than they have", "range(max(0, left - room),", "range(0,"),
    ],
    "topology/closest_so_far.py": [
        (
            "a wide machine gives up on close NUMA nodes too early",
            "costs[node] + nearest[wanted - 1]",
            "2 * costs[node] + nearest[wanted - 1]",
        ),
        (
            "a wide machine wants what is closer than what it knows",
            "total_distance(mask, self._distances) + self._step",
            "total_distance(mask, self._distances)",
        ),
        (
            "a wide machine weighs distances one way only",
            "distances[one][other] + distances[other][one]",
            "2 * distances[one][other]",
        ),
    ],
    "topology/search.py": [
        (
            "a wide machine takes NUMA nodes of other sockets for alike",
            "(signature, self.kinds.get(node)) if self.all_alike",
            "signature if self.all_alike",
        ),
        (
            "a wide machine takes NUMA nodes with other amounts for alike",
            "(number, 0 if alone else mask, amount)",
            "(number, 0 if alone else mask, 0)",
        ),
        (
            "a wide machine counts a device of several NUMA nodes more than once",
            "            left[index] = threshold.need - threshold.gathered(mask)",
            "            pass",
        ),
        (
            "a wide machine does not count what the mask held before",
            "return tuple(each.need - each.gathered(self.including)",
            "return tuple(each.need",
        ),
        (
            "a wide machine takes NUMA nodes of other distances for alike",
            "classes = [every] if distances is None else",
            "classes = [every] if True else",
        ),
    ],
    "topology/fittest.py": [
        (
            "the first spread passes for the closest",
            "        if found:\n            return min(found)\n    return None",
            "        return min(found, default=None)\n    return None",
        ),
        ("of masks that are as close the first spread's wins", "return min(found)", "return found[0]"),
        (
            "a spread that just reaches a threshold does not",
            "for best, count in zip(most, spread, strict=True)]) >= need",
            "for best, count in zip(most, spread, strict=True)]) > need",
        ),
        (
            "a spread is searched with no regard to what resources need",
            "thresholds=[*search.thresholds, *counts]",
            "thresholds=counts",
        ),
        ("how masks spread does not count", "thresholds=[*search.thresholds, *counts]", "thresholds=search.thresholds"),
        (
            "a mask is brought closer though it lacks something",
            "if all(rule.met_by(each) for rule in search.thresholds)",
            "if True",
        ),
    ],
    "topology/intersection.py": [
        (
            "a wide machine takes any masks for intersections",
            "lambda mask: self._can_spare(self._universe & ~mask)",
            "lambda _: True",
        ),
        (
            "a wide machine leaves too few NUMA nodes out",
            "threshold.gathered(family.universe) - threshold.need",
            "threshold.gathered(family.universe) - threshold.need - 1",
        ),
        (
            "a wide machine divides devices of several NUMA nodes as if each stood on one",
            "if not self.adds_up:",
            "if False:",
        ),
    ],
    "cpu/options.py": [
        (
            "full-pcpus-only goes with distribute-cpus-across-cores",
            "    (gate.FULL_PCPUS_ONLY, gate.DISTRIBUTE_ACROSS_CORES),\n",
            "",
        ),
        (
            "prefer-align-cpus-by-uncorecache goes with distribute-cpus-across-numa",
            "    (gate.PREFER_UNCORE_CACHE, gate.DISTRIBUTE_ACROSS_NUMA),\n",
            "",
        ),
        (
            "align-by-socket goes with single-numa-node",
            'if topology_manager_policy == "single-numa-node":',
            "if False:",
        ),
        (
            "align-by-socket needs fewer sockets than NUMA nodes",
            "len(topology.sockets) > len(",
            "len(topology.sockets) >= len(",
        ),
        (
            "align-by-socket works with more sockets than NUMA nodes",
            "if len(topology.sockets) > len(topology.numa_nodes):",
            "if False:",
        ),
        (
            "options that exclude each other do so though one is off",
            "if values.get(one) and values.get(other):",
            "if one in values and other in values:",
        ),
        ("a disabled alpha option is accepted", 'if level == "alpha" and not gates.alpha_options:', "if False:"),
        ("a disabled beta option is accepted", 'if level == "beta" and not gates.beta_options:', "if False:"),
    ],
    "cpu/topology.py": [
        (
            "where there are as many sockets as NUMA nodes, sockets come first",
            "len(self.sockets) >= len(self.numa_nodes)",
            "len(self.sockets) > len(self.numa_nodes)",
        ),
        (
            "the largest core tells how many threads a core has",
            "cpus_per_core=count // len(machine.cores)",
            "cpus_per_core=max(threads.bit_count() for threads in cores.values())",
        ),
        (
            "the largest socket tells how many CPUs a socket has",
            "cpus_per_socket=count // len(sockets)",
            "cpus_per_socket=max(cpus.bit_count() for cpus in sockets.values())",
        ),
        (
            "the smallest cache tells how many CPUs a cache has",
            "cpus_per_uncore_cache=count // len(caches)",
            "cpus_per_uncore_cache=min(cpus.bit_count() for cpus in caches.values())",
        ),
        (
            "a CPU's siblings are not told",
            "                together |= threads",
            "                together |= threads & cpus",
        ),
        ("a core without CPUs is no error", "if any(not core.threads for core in machine.cores):", "if False:"),
        ("a machine without CPUs is told in other words", '"could not detect number of cpus"', '"no cpus provided"'),
    ],
    "cpu/static.py": [
        (
            "a pod's set of CPUs that cannot be divided is given back",
            "        if rejection is None:\n            self.bubble = bubble\n",
            "        self.bubble = bubble\n",
        ),
        ("a fraction of a CPU is rounded up to an exclusive one", "if is_whole(quantity) and", "if"),
        ("burstable pods get exclusive CPUs", "        if not qos.is_guaranteed(pod, gates):\n", "        if False:\n"),
        (
            "containers that share a pod's CPUs get exclusive ones",
            "and not qos.is_container_guaranteed(container):",
            "and False:",
        ),
        (
            "strict-cpu-reservation leaves reserved CPUs in the shared pool",
            "& ~self.reserved if self.options.strict_reservation else",
            "if self.options.strict_reservation else",
        ),
        (
            "reserved CPUs leave the shared pool without strict-cpu-reservation",
            "& ~self.reserved if self.options.strict_reservation else",
            "& ~self.reserved if True else",
        ),
        ("reserved CPUs are given away", "return self.pool & ~self._policy.reserved\n", "return self.pool\n"),
        (
            "half a reserved CPU counts as none",
            "-(-settings.reserved_cpu_millis // 1000)",
            "settings.reserved_cpu_millis // 1000",
        ),
        ("the static policy needs no reserved CPU", "    if count <= 0:\n", "    if count < 0:\n"),
        ("an unknown reserved CPU is accepted", "    if unknown:\n", "    if False:\n"),
        (
            "siblings of reserved CPUs count as free cores",
            "reserved, topology.siblings(reserved))",
            "reserved, reserved)",
        ),
        (
            "reserved CPUs are the highest, not those that a request would get",
            "reserved = settings.reserved_cpus or _take_reserved(topology, count, options, gates)",
            "reserved = settings.reserved_cpus or (1 << count) - 1",
        ),
        ("full-pcpus-only gives half a core", "        if count % per_core:\n", "        if False:\n"),
        ("full-pcpus-only does not count free cores", "        if count > available:\n", "        if False:\n"),
        (
            "full-pcpus-only counts cores that an init container left for reuse",
            "available = (self.pool & ~",
            "available = ((self.pool | self._reusable) & ~",
        ),
        (
            "full-pcpus-only spreads CPUs one by one over NUMA nodes",
            "(topology.cpus_per_core if options.full_pcpus_only else 1)",
            "1",
        ),
        (
            "distribute-cpus-across-numa is without effect",
            "if options.distribute_across_numa else None",
            "if False else None",
        ),
        (
            "distribute-cpus-across-cores is without effect",
            "        options.distribute_across_cores,\n",
            "        False,\n",
        ),
        ("prefer-align-cpus-by-uncorecache is without effect", "options.prefer_uncore_cache,\n", "False,\n"),
        (
            "hints of a container that has its CPUs look elsewhere",
            "return [self._impossible(count)]\n        return [self._offer(assigned, 0, count)]",
            "return [self._impossible(count)]\n        return [self._offer(self._available, 0, count)]",
        ),
        (
            "a container whose request changed keeps its CPUs",
            "        if assigned.bit_count() != count:\n",
            "        if False:\n",
        ),
        (
            "scope pod accepts a container whose request changed",
            "                if cpus.bit_count() != self.requested(pod, container):\n",
            "                if False:\n",
        ),
        ("scope pod offers a pod's own CPUs to nobody", "self._reusable | assigned, count)", "self._reusable, count)"),
        (
            "scope pod looks at the CPUs of one container alone",
            "                assigned |= cpus\n",
            "                assigned = cpus\n",
        ),
        ("reusable CPUs do not count as free", "count - reusable.bit_count())]", "count)]"),
        (
            "masks need not hold reusable CPUs",
            "for node in members(self._policy.topology.numa_nodes_with(reusable))]",
            "for node in ()]",
        ),
        ("the preferred width counts free CPUs only", "(per_node(sizes, count),)", "(per_node(free, count),)"),
        (
            "align-by-socket rounds the sockets that a request needs down",
            "-(-width // per_socket))",
            "width // per_socket)",
        ),
        (
            "align-by-socket takes CPUs of the affinity's NUMA nodes only",
            "if not self._policy.options.align_by_socket:\n            return local",
            "if True:\n            return local",
        ),
        (
            "align-by-socket prefers no mask",
            "if not self._policy.options.align_by_socket or per_socket == 0:",
            "if True:",
        ),
        ("reusable CPUs are not given again", "free = self._available | reusable\n", "free = self._available\n"),
        (
            "CPUs beyond the affinity are not given",
            "rest = take(topology, free & ~taken,",
            "rest = take(topology, (free if affinity is None else 0) & ~taken,",
        ),
        ("CPUs of the affinity do not come first", "            taken = first\n", ""),
        (
            "sidecars leave their CPUs to later containers",
            "        if container.kind is ContainerKind.INIT:\n            self._reusable |= cpus",
            "        if container.kind is not ContainerKind.APP:\n            self._reusable |= cpus",
        ),
        ("init containers leave no CPUs to later ones", "            self._reusable |= cpus\n", "            pass\n"),
        ("two containers reuse the same CPUs", "            self._reusable &= ~cpus", "            pass"),
        ("CPUs given stay in the shared pool", "        self.pool &= ~(taken | rest)\n", ""),
        ("a whole pod that ends leaves its CPUs taken", "        self.pool |= self.bubble\n", ""),
        (
            "init containers of a whole pod use CPUs up",
            "                if container.kind is not ContainerKind.INIT:\n                    left &= ~taken",
            "                if True:\n                    left &= ~taken",
        ),
        (
            "sidecars of a whole pod use no CPUs up",
            "                if container.kind is not ContainerKind.INIT:\n                    left &= ~taken",
            "                if container.kind is ContainerKind.APP:\n                    left &= ~taken",
        ),
        (
            "init containers without a request get what is left at the end",
            "                shares[container.name] = left\n",
            "                pass\n",
        ),
        (
            "a whole pod may leave nothing to init containers that share",
            "elif requested == 0 and exclusive >= count:",
            "elif requested == 0 and exclusive > count:",
        ),
        (
            "a whole pod may leave nothing to containers that share",
            "if shared and exclusive >= count:",
            "if shared and exclusive > count:",
        ),
        (
            "a pod needs its init containers' CPUs beside the others",
            "return largest_need((each.kind, self.requested(pod, each)) for each in pod.containers)",
            "return sum(self.requested(pod, each) for each in pod.containers)",
        ),
        (
            "a pod that is left alone gets CPUs",
            "count == 0 or qos.is_left_alone(pod, self._policy.gates):\n            return None",
            "count == 0:\n            return None",
        ),
    ],
    "cpu/assignment.py": [
        (
            "the remainder comes from the first members",
            "tuple([nodes[place] for place in scored.remainder])",
            "tuple(nodes[: len(scored.remainder)])",
        ),
        (
            "NUMA nodes beside the members do not count for the balance",
            "(Counter(self.free.values()) - Counter(left.values())).elements()",
            "()",
        ),
        (
            "distribute-cpus-across-numa spreads what makes no whole cores",
            "if strategy.group is None or count % strategy.group:",
            "if strategy.group is None:",
        ),
        (
            "an element as large as the need is not taken whole",
            "if self.needed >= elements[number].bit_count():",
            "if self.needed > elements[number].bit_count():",
        ),
        (
            "an element larger than the need is taken whole",
            "if self.needed >= elements[number].bit_count():",
            "if True:",
        ),
        ("the emptiest elements come first", "        keyed.sort()\n", "        keyed.sort(reverse=True)\n"),
        (
            "elements come in the order of their ids alone",
            "keyed = [((elements[each] & free).bit_count(), each)",
            "keyed = [(0, each)",
        ),
        (
            "of equally full elements the highest id comes first",
            "        keyed.sort()\n",
            "        keyed.sort(key=lambda each: (each[0], -each[1]))\n",
        ),
        (
            "NUMA nodes are not sorted by their sockets",
            "if topology.numa_first:\n            return self._sorted(",
            "if True:\n            return self._sorted(",
        ),
        (
            "sockets are not sorted by their NUMA nodes",
            "if not topology.numa_first:\n            return self._sorted(",
            "if True:\n            return self._sorted(",
        ),
        (
            "cores are sorted by NUMA node where sockets are smaller",
            "        if topology.numa_first:\n            groups = [topology.cores_of_socket",
            "        if False:\n            groups = [topology.cores_of_socket",
        ),
        (
            "cores are sorted by socket where NUMA nodes are smaller",
            "        if topology.numa_first:\n            groups = [topology.cores_of_socket",
            "        if True:\n            groups = [topology.cores_of_socket",
        ),
        (
            "caches are not sorted by NUMA node",
            "            for node in self.numa_nodes()\n            for cache",
            "            for node in topology.numa_nodes\n            for cache",
        ),
        (
            "CPUs are spread by core, not by socket",
            "        if spread:\n            groups",
            "        if False:\n            groups",
        ),
        ("a NUMA node in use counts as fully free", "lambda node: not nodes[node] & ~self.free)", "lambda node: True)"),
        (
            "a socket in use counts as fully free",
            "lambda socket: (sockets[socket] & self.free).bit_count() == size)",
            "lambda socket: True)",
        ),
        (
            "a fully free socket is told by itself, not by the average",
            "lambda socket: (sockets[socket] & self.free).bit_count() == size)",
            "lambda socket: not sockets[socket] & ~self.free)",
        ),
        (
            "a core in use counts as fully free",
            "lambda core: (cores[core] & self.free).bit_count() == size)",
            "lambda core: True)",
        ),
        (
            "a fully free core is told by itself, not by the average",
            "lambda core: (cores[core] & self.free).bit_count() == size)",
            "lambda core: not cores[core] & ~self.free)",
        ),
        ("a cache in use counts as fully free", "lambda each: not caches[each] & ~self.free)", "lambda each: True)"),
        (
            "whole caches are taken though the need is smaller than the average",
            "if self.needed >= self.topology.cpus_per_uncore_cache:",
            "if True:",
        ),
        ("no part of a cache is taken", "            self._take_part_of(cache, started_cores=started_cores)\n", ""),
        (
            "an odd number of CPUs takes a whole last core of a cache",
            "            cpus ^= 1 << (cpus.bit_length() - 1)",
            "            pass",
        ),
        (
            "too many CPUs of a cache are taken",
            "if cpus.bit_count() == self.needed:",
            "if cpus.bit_count() >= self.needed:",
        ),
        (
            "NUMA nodes come before sockets though they are smaller",
            "    if not topology.numa_first:\n        steps.reverse()\n",
            "",
        ),
        (
            "distribute-cpus-across-cores takes whole cores",
            "    if not strategy.spread:\n        steps.append",
            "    if True:\n        steps.append",
        ),
        (
            "CPUs taken twice count once",
            "        self.result |= cpus\n",
            "        cpus &= ~self.result\n        self.result |= cpus\n",
        ),
        ("combinations are never overwritten in memory", "if self.length < len(self.array):", "if False:"),
        ("arrays grow by one", "room = max(1, 2 * len(self.array))", "room = len(self.array) + 1"),
        (
            "distribute-cpus-across-numa tries too few NUMA nodes",
            "range((wanted - 1) // per_node + 1, min(",
            "range(1, min(",
        ),
        (
            "the last of equally balanced combinations wins",
            "choice.balance) < (not best.on_one_socket",
            "choice.balance) <= (not best.on_one_socket",
        ),
        (
            "the least balanced combination wins",
            "choice.balance) < (not best.on_one_socket",
            "choice.balance) > (not best.on_one_socket",
        ),
        ("a NUMA node need not hold its even share", "if any(each < even for each in free):", "if False:"),
        (
            "threads of broken cores count for whole ones",
            " or sum(each // group for each in free) * group < self.count:",
            ":",
        ),
        (
            "the remainder goes to as few NUMA nodes as can be",
            "for size in range(len(candidates), 0, -1):",
            "for size in range(1, len(candidates) + 1):",
        ),
        (
            "the last of equally balanced remainders wins",
            "if balance is None or found < balance:",
            "if balance is None or found <= balance:",
        ),
        (
            "the remainder goes to NUMA nodes that have less than it left",
            "if sum(left[place] for place in subset) < remainder:",
            "if False:",
        ),
        (
            "the even share is not a number of whole groups",
            "even = self.count // len(free) // self.group * self.group",
            "even = self.count // len(free)",
        ),
        (
            "the deviation is not rounded",
            "return (whole + 1 if scaled - whole >= 0.5 else whole) / 1000",
            "return number",
        ),
        ("the deviation is rounded down", "whole + 1 if scaled - whole >= 0.5 else whole", "whole"),
        ("what is taken does not count for the balance", "            left[place] -= even\n", "            pass\n"),
        (
            "the remainder is handed out to NUMA nodes without room for it",
            "if (acc.free & topology.numa_nodes[node]).bit_count() < group:",
            "if False:",
        ),
    ],
    "memory/machine_state.py": [
        (
            "the highest NUMA node of a group is filled first",
            "for number in members(mask):\n            node =",
            "for number in reversed(list(members(mask))):\n            node =",
        ),
        (
            "the highest NUMA node of a group is freed first",
            "for number in members(block.numa_nodes):\n            node = self.nodes.get(number)",
            "for number in reversed(list(members(block.numa_nodes))):\n            node = self.nodes.get(number)",
        ),
        (
            "a block of no bytes is no assignment",
            "            node.assignments += 1\n",
            "            node.assignments += size > 0\n",
        ),
        ("blocks form no groups", "            node.cells = mask\n", ""),
        (
            "a group lasts when its last block has gone",
            "            if node.assignments == 0:\n",
            "            if False:\n",
        ),
        ("a NUMA node gives more than it has", "given = min(size, max(0, self.free.get(resource, 0)))", "given = size"),
        (
            "a NUMA node takes back more than it gave",
            "returned = min(size, self.reserved.get(resource, 0))",
            "returned = size",
        ),
        (
            "a node of a group takes blocks of its own",
            "return not single or self.nodes[mask.bit_length() - 1].cells.bit_count() <= 1",
            "return True",
        ),
        ("single NUMA nodes are asked about their group at the end, too", "return not single or self", "return self"),
        (
            "a node of one group joins another",
            "(node.cells.bit_count() > 1 and node.cells == mask)",
            "node.cells.bit_count() > 1",
        ),
        (
            "a node with blocks of its own joins a group",
            "not node.assignments or (node.cells",
            "node.cells.bit_count() == 1 or (node.cells",
        ),
        (
            "a group may be formed with nodes that hold blocks",
            "for number, node in self.nodes.items() if not node.assignments)",
            "for number, node in self.nodes.items())",
        ),
        (
            "a huge page size that is not there has none free",
            "            raise _missing(resource, node)",
            "            return 0",
        ),
    ],
    "memory/static.py": [
        ("huge pages count as memory too", "node.memory - sum(totals.values())", "node.memory"),
        ("reserved memory is allocatable", "total - reserved.get((node.id, resource), 0)", "total"),
        (
            "the static policy needs no reserved memory",
            "if resource == qos.MEMORY) <= 0:",
            "if resource == qos.MEMORY) < 0:",
        ),
        (
            "reserved huge pages stand in for reserved memory",
            "for (_, resource), size in reserved.items() if resource == qos.MEMORY) <= 0",
            "for (_, resource), size in reserved.items()) <= 0",
        ),
        (
            "memory may be reserved on a NUMA node that is not there",
            "        if each.numa_node not in nodes:\n",
            "        if False:\n",
        ),
        ("groups that hold blocks are not offered again", " | self.book.groups()", ""),
        (
            "the preferred width counts free memory only",
            "Family(everything, tuple(could))",
            "Family(everything, tuple(free))",
        ),
        (
            "memory that no machine of this size has is impossible",
            "        if width is None:\n            return Answer.NO_PREFERENCE",
            "        if width is None:\n            return Answer.IMPOSSIBLE",
        ),
        (
            "memory that fits nowhere is impossible",
            "return hints_or(Answer.NO_PREFERENCE, Hints(families, masks, width))",
            "return hints_or(Answer.IMPOSSIBLE, Hints(families, masks, width))",
        ),
        (
            "a new group may have one NUMA node that holds no blocks yet",
            "tuple(free), least=2)",
            "tuple(free), least=3)",
        ),
        ("reusable memory does not count as free", " + self._reusable.get((mask, resource), 0) >= size", " >= size"),
        (
            "the affinity is not extended",
            "if any(self.book.free_within(mask, resource) < size for resource, size in requests.items()):",
            "if False:",
        ),
        (
            "the extended affinity forgets the one it extends",
            "found = self._best(requests, including=mask)",
            "found = self._best(requests)",
        ),
        (
            "an affinity may violate a group",
            "        if self._policy.gates.refuses_mixed_groups and not self.book.suits(mask, single=False):\n",
            "        if False:\n",
        ),
        (
            "an extended affinity need not be preferred",
            'not found.preferred:\n                return "[memorymanager] failed to find the extended',
            'False:\n                return "[memorymanager] failed to find the extended',
        ),
        (
            "a default affinity need not be preferred",
            'not found.preferred:\n                return "[memorymanager] failed to find the default',
            'False:\n                return "[memorymanager] failed to find the default',
        ),
        (
            "memory that is held has hints though the request changed",
            "if len(blocks) != len(requests) or any(requests.get(each.resource) != each.size for each in blocks):",
            "if False:",
        ),
        (
            "a resource that is held beside others has no say",
            "if len(blocks) != len(requests) or any(",
            "if len(blocks) == len(requests) or any(",
        ),
        (
            "a pod's hints name what only init containers ask for",
            "for kind, own in needs if kind is ContainerKind.APP for name in own)",
            "for kind, own in needs for name in own)",
        ),
        (
            "a pod needs its init containers' memory beside the others",
            "largest_need((kind, own.get(name, 0)) for kind, own in needs)",
            "sum(own.get(name, 0) for kind, own in needs)",
        ),
        (
            "memory of init containers adds up for reuse",
            "self._reusable[key] = max(reusable, block.size)",
            "self._reusable[key] = reusable + block.size",
        ),
        (
            "sidecars leave their memory to later containers",
            "            if container.kind is ContainerKind.INIT:\n                self._reusable[key]",
            "            if container.kind is not ContainerKind.APP:\n                self._reusable[key]",
        ),
        ("two containers reuse the same memory", "self._reusable[key] = max(0, reusable - block.size)", "pass"),
        ("reused memory is reserved twice", "max(0, size - self._reusable.get((mask, resource), 0))", "size"),
        (
            "reused memory stays with the init containers",
            "        self._shrink_init_blocks(pod, container, blocks)\n",
            "",
        ),
        (
            "sidecars' blocks shrink as they are reused",
            "                if earlier.kind is not ContainerKind.INIT:\n                    continue\n",
            "",
        ),
        (
            "init blocks shrink whatever NUMA nodes they are on",
            "same = own.resource == block.resource and own.numa_nodes == block.numa_nodes",
            "same = own.resource == block.resource",
        ),
        (
            "a container that has its memory is given more",
            "        if container.name in self.blocks:\n            self._update_reusable",
            "        if False:\n            self._update_reusable",
        ),
        (
            "a container that has its memory is given new hints",
            "        if container.name in self.blocks:\n            return self._regenerated",
            "        if False:\n            return self._regenerated",
        ),
        ("a pod that has its memory is given new hints", "if requests and container.name in self.blocks:", "if False:"),
        (
            "half a byte of memory is rounded",
            "        if size is None:\n            return None\n",
            "        if size is None:\n            size = 0\n",
        ),
        (
            "huge pages without memory crash nothing",
            "                return None\n            raise KubeletBreaks(",
            "                return None\n            return None\n            raise KubeletBreaks(",
        ),
        ("policy BestEffort starts on Linux", 'if name == "BestEffort" and', 'if name == "BestEfforts" and'),
        (
            "pods that are not Guaranteed get memory of their own",
            "return qos.is_guaranteed(pod, self._policy.gates) and not",
            "return not",
        ),
        (
            "a whole pod that ends leaves its memory by container",
            "for block in self.pod_blocks or (block",
            "for block in (block",
        ),
        (
            "init containers of a whole pod use memory up",
            "                if container.kind is not ContainerKind.INIT:\n                    left = {",
            "                if True:\n                    left = {",
        ),
        (
            "a whole pod may leave no memory to containers that share",
            "if shared and exclusive[name] >= size:",
            "if shared and exclusive[name] > size:",
        ),
        (
            "a whole pod may leave no memory to init containers that share",
            "                    if exclusive[name] >= size:\n",
            "                    if exclusive[name] > size:\n",
        ),
    ],
    "devices/manager.py": [
        (
            "device hints are made from requests",
            "self._requests(container.resources.limits):\n            held",
            "self._requests(container.resources.requests):\n            held",
        ),
        (
            "devices are given by requests",
            "self._requests(container.resources.limits):\n            chosen",
            "self._requests(container.resources.requests):\n            chosen",
        ),
        ("unhealthy devices are given", "return self.healthy - self.in_use", "return set(self.all) - self.in_use"),
        ("devices are given twice", "return self.healthy - self.in_use", "return set(self.healthy)"),
        (
            "devices without topology are impossible where there are none",
            "        if not pool.numa_aware:\n",
            "        if False:\n",
        ),
        (
            "one device without a NUMA node makes its resource have none",
            "return any(device.numa_nodes for",
            "return all(device.numa_nodes for",
        ),
        (
            "a container whose request changed keeps its devices' hints",
            "if len(held) == count else Answer.IMPOSSIBLE",
            "if True else Answer.IMPOSSIBLE",
        ),
        (
            "hints of devices that are held look elsewhere",
            "        if held:\n            return",
            "        if False:\n            return",
        ),
        ("reusable devices do not count as free", "if len(free | reusable) < count:", "if len(free) < count:"),
        (
            "the preferred width counts free devices only",
            "Threshold(self._groups(pool, pool.all), count)",
            "Threshold(self._groups(pool, free), count)",
        ),
        ("reusable devices do not count in masks", "count - len(local))]", "count)]"),
        (
            "masks need not hold reusable devices",
            "        thresholds += {touching(numa_mask(pool.numa_nodes_of(name))) for name in local}\n",
            "",
        ),
        (
            "a device of NUMA nodes that are not there makes no masks",
            "devices, 0) & numa_nodes or numa_nodes",
            "devices, 0) & numa_nodes",
        ),
        ("devices of the affinity do not come first", "for each in (aligned, free - aligned):", "for each in (free,):"),
        (
            "devices beyond the affinity are not given",
            "for each in (aligned, free - aligned):",
            "for each in (aligned,):",
        ),
        (
            "devices without any healthy one fail in other words",
            "        if not pool.healthy:\n",
            "        if False:\n",
        ),
        (
            "an unhealthy device that is held is no error",
            "if held is not None and not held <= pool.healthy:",
            "if False:",
        ),
        (
            "a container whose request changed keeps its devices",
            "if held is not None and len(held) != count:",
            "if False:",
        ),
        ("a resource whose plugin has gone is given", "        if not pool.registered:\n", "        if False:\n"),
        ("devices that are held are given anew", "if held is not None or count == 0:", "if count == 0:"),
        ("too few free devices are given all the same", "        if len(free) < needed:\n", "        if False:\n"),
        (
            "sidecars leave their devices to later containers",
            "if container.kind is ContainerKind.INIT else reusable - held",
            "if container.kind is not ContainerKind.APP else reusable - held",
        ),
        (
            "init containers leave no devices to later ones",
            "reusable | held if container.kind is ContainerKind.INIT else reusable - held",
            "reusable - held",
        ),
        (
            "two containers reuse the same devices",
            "if container.kind is ContainerKind.INIT else reusable - held",
            "if container.kind is ContainerKind.INIT else reusable",
        ),
        ("devices given are not in use", "        pool.in_use |= chosen\n", ""),
        (
            "devices come in the order of their letters",
            "if part.isascii() and part.isdigit() and len(part) < 19 else",
            "if False else",
        ),
        (
            "a pod needs its init containers' devices beside the others",
            "name: largest_need((container.kind, container.resources.limits.get(name, 0)) for",
            "name: sum(container.resources.limits.get(name, 0) for",
        ),
    ],
}


def mutants() -> Iterator[Mutant]:
    """The whole list."""
    for file, broken in _BROKEN.items():
        for breaks, old, new in broken:
            yield Mutant(breaks, file, old, new)

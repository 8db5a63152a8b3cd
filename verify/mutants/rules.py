"""The mutants written by hand, file by file: those that no operator makes. The suite must notice every one."""

from collections.abc import Iterator

from verify.mutants.mutant import Mutant

# What replay then gets wrong, the function, the piece of its code, and what stands there instead.
_BROKEN: dict[str, list[tuple[str, str, str, str]]] = {
    "gates.py": [
        (
            "distribute-cpus-across-numa is stable",
            "_cpu_option_levels",
            'DISTRIBUTE_ACROSS_NUMA: "beta" if minor >= 33 else "alpha"',
            'DISTRIBUTE_ACROSS_NUMA: "stable"',
        ),
        ("a version beyond the known ones has rules of its own", "_minor", "NEWEST_MINOR)\n", "99)\n"),
        ("a kubelet of 1.37 has the next release's rules", "is_newer", "> NEWEST_MINOR", ">= NEWEST_MINOR"),
        ("a version before the known ones has rules of its own", "_minor", "max(told, OLDEST_MINOR)", "told"),
        (
            "pod-level resources are not skipped since v1.36 where their gate is off",
            "_gates_of",
            "skips_pod_level_resources=not managers if minor >= 36 else",
            "skips_pod_level_resources=not managers and pod_level if minor >= 36 else",
        ),
        (
            "gate TopologyManagerPolicyOptions never counts",
            "_gates_of",
            "topology_options=gates.get(TOPOLOGY_POLICY_OPTIONS, True)",
            "topology_options=True",
        ),
    ],
    "resize.py": [
        (
            "a state must not show memory that a pod holds",
            "_held_while_running",
            "block.resource for block in each.memory",
            "",
        ),
        (
            "a state must not show devices that a pod holds",
            "_held_while_running",
            "devices.resource for devices in each.devices",
            "",
        ),
        (
            "a resize that is put off carries the prefix of refused pods",
            "resize",
            "verdict.message.removeprefix(MESSAGE_PREFIX)",
            "verdict.message",
        ),
        (
            "a pod that the managers refuse loses what it holds",
            "resize",
            "removeprefix(MESSAGE_PREFIX), verdict, remarks), node",
            "removeprefix(MESSAGE_PREFIX), verdict, remarks), after",
        ),
        (
            "what the managers gave is taken back where totals lack",
            "resize",
            "lacking, verdict, verdict.unmodelled), after",
            "lacking, verdict, verdict.unmodelled), node",
        ),
        ("totals are not asked", "resize", 'Resized(DEFERRED if lacking else "", lacking', 'Resized("", ""'),
        (
            "sidecars are resized as init containers are",
            "_is_resizable",
            "container.kind is not ContainerKind.INIT or",
            "container.kind is ContainerKind.APP or",
        ),
        (
            "v1.33 words policies as v1.34 does",
            "_words",
            "if gates.resize_judges_resource:",
            "if gates:",
        ),
        (
            "the empty node's thresholds count",
            "_why_too_large",
            "{**totals.allocatable, **totals.unreserved}",
            "totals.allocatable",
        ),
        (
            "the empty node lacks CPUs before memory",
            "_why_too_large",
            "in (qos.MEMORY, qos.CPU)",
            "in (qos.CPU, qos.MEMORY)",
        ),
        (
            "totals lack memory before CPUs",
            "_why_not_fitting",
            "in (qos.CPU, qos.MEMORY):\n        amounts",
            "in (qos.MEMORY, qos.CPU):\n        amounts",
        ),
    ],
    "options.py": [
        (
            "a map is printed in its own order, not sorted",
            "go_map",
            "for name in sorted(options)",
            "for name in options",
        ),
    ],
    "errors.py": [
        ("the message lacks the kubelet's prefix", "", '"Pod was rejected: "', '"Pod rejected: "'),
        ("a refusal for topology has another reason", "", '"TopologyAffinityError"', '"TopologyError"'),
        ("a refusal for whole cores has no reason of its own", "", '"SMTAlignmentError"', '"UnexpectedAdmissionError"'),
        (
            "a refusal for an empty shared pool has no reason of its own",
            "",
            '"EmptyPodSharedPoolError"',
            '"UnexpectedAdmissionError"',
        ),
        (
            "a manager's error stands alone in the message",
            "unexpected",
            'f"Allocate failed due to {error}, which is unexpected"',
            'f"{error}, is unexpected"',
        ),
    ],
    "container_manager.py": [
        (
            "one NUMA node too many is accepted",
            "_topology_manager",
            "> options.max_numa_nodes:",
            "> options.max_numa_nodes + 1:",
        ),
        (
            "the Topology Manager's options are read under policy none",
            "_topology_manager",
            "if policy == policy_names.NONE:",
            "if policy == policy_names.NONE and not settings.topology_manager_policy_options:",
        ),
        (
            "an unknown topology policy is accepted",
            "_topology_manager",
            "if policy not in policy_names.POLICIES:",
            "if not policy:",
        ),
        (
            "an unknown scope is accepted",
            "_topology_manager",
            'if settings.topology_manager_scope not in ("container", "pod"):',
            "if not settings.topology_manager_scope:",
        ),
        ("an unknown CPU policy is none", "_cpu_manager", '    if policy != "static" or', "    if not policy or"),
    ],
    "admission.py": [
        (
            "a refused pod keeps its record",
            "admit",
            " if previous else node.pods\n        return _rejected(",
            "; pods = node.pods\n        return _rejected(",
        ),
        (
            "devices of other pods are free",
            "providers_of",
            "(device for other in others for device in other.devices),",
            "(),",
        ),
        (
            "a container that was served without memory is served anew under pod-level managers",
            "_providers",
            "blank = kubelet.gates.pod_level_resource_managers",
            "blank = False",
        ),
        (
            "containers without memory of their own pass for served",
            "_providers",
            "blank = kubelet.gates.pod_level_resource_managers",
            "blank = True",
        ),
        (
            "a pod that ends leaves its memory and CPUs reserved",
            "release",
            "            providers.remove_pod()\n            node",
            "            node",
        ),
        (
            "CPUs that only the kubelet's pool tells are forgotten",
            "_with_pods",
            "        pool = providers.cpu.pool\n    if",
            "        pool = None\n    if",
        ),
    ],
    "fast_path/admission.py": [
        (
            "an answer to one pod is the answer to all",
            "_likeness",
            "containers = tuple((each.name, each.kind, _asked(each.resources)) for each in pod.containers)",
            "containers = ()",
        ),
        (
            "a fit under best-effort is refused where no NUMA node holds it",
            "_NodeCheck.admits",
            "return True if common else None if policy == BEST_EFFORT else False",
            "return bool(common)",
        ),
        (
            "too few devices pass in a fit where they are on no NUMA node",
            "_NodeCheck._devices",
            "if space.nodes else Precheck.REFUSED\n",
            "if space.nodes else Precheck.NOT_ALIGNED\n",
        ),
        (
            "a fit takes the highest of the NUMA nodes that hold a pod",
            "_NodeCheck._standing",
            "lowest = common & -common\n",
            "lowest = 1 << common.bit_length() - 1\n",
        ),
        (
            "a fit takes memory without preference for the reason of a refusal",
            "_NodeCheck._fitting_memory",
            "                return {}\n",
            "                pass\n",
        ),
    ],
    "effort.py": [
        ("a pod of many containers has the share of one", "Shares.working_on", "max(1, containers)", "1"),
    ],
    "simulation.py": [
        (
            "pods of which only the allocation is known take nothing",
            "simulation_of",
            "(*known, *others)",
            "known",
        ),
        (
            "rules about the facts of an unknown Node are judged",
            "Simulation._judged",
            'replace(bound, node="", placement=placement, strict_groups=False)',
            'replace(bound, node="")',
        ),
    ],
    "startup/state/restore.py": [
        (
            "memory may have changed",
            "_same_table",
            'names = ["TotalMemSize", "SystemReserved", "Allocatable"]',
            "names: list[str] = []",
        ),
    ],
    "startup/state/checkpoints.py": [
        (
            "memory in an older format is not copied before its policy is compared",
            "load_memory",
            "return cloned(_first(v2, lambda: _memory_v1(content)))\n    if gates.pod_level_resource_managers:",
            "return _first(v2, lambda: _memory_v1(content))\n    if gates.pod_level_resource_managers:",
        ),
    ],
    "topology/options.py": [
        (
            "a limit below 8 NUMA nodes is accepted",
            "_max_numa_nodes",
            "if int(text) < DEFAULT_MAX_NUMA_NODES:",
            "if int(text) < 0:",
        ),
        (
            "unknown options of the Topology Manager are accepted",
            "_check_available",
            'raise InvalidOption(f"unknown Topology Manager Policy option: {quoted(name)}")',
            "return",
        ),
        (
            "prefer-most-allocated-numa-node counts although it is off",
            "_strategy",
            "return name if parse_bool(name, text) else numa_allocation_strategy.NONE",
            "parse_bool(name, text)\n    return name",
        ),
    ],
    "topology/policies.py": [
        (
            "single-numa-node takes several NUMA nodes",
            "decide",
            "hint = merge_single(info, offers, tie_break.fittest if isinstance(tie_break, Strategy) else tie_break)",
            "hint = merge(info, offers)",
        ),
        (
            "best-effort and restricted take single NUMA nodes only",
            "decide",
            "hint = merge(info, offers, strategy, preferred_only=policy == RESTRICTED and not traced, effort=effort)",
            "hint = merge_single(info, offers)",
        ),
        (
            "numa-allocation-strategy is without effect under single-numa-node",
            "decide",
            "tie_break.fittest if isinstance(tie_break, Strategy) else tie_break",
            "min if isinstance(tie_break, Strategy) else tie_break",
        ),
        (
            "numa-allocation-strategy is without effect under best-effort and restricted",
            "decide",
            "merge(info, offers, strategy, preferred_only",
            "merge(info, offers, None, preferred_only",
        ),
    ],
    "scopes.py": [
        (
            "scope pod steers the first container only",
            "Scope._admit_pod",
            "(each.name for each in pod.containers), affinity",
            "(each.name for each in pod.containers[:1]), affinity",
        ),
        (
            "devices are taken anywhere",
            "Scope._allocate",
            "providers.devices.allocate(pod, container, affinity.mask)",
            "providers.devices.allocate(pod, container, None)",
        ),
        (
            "CPUs are taken anywhere",
            "Scope._allocate",
            "providers.cpu.allocate(pod, container, affinity.mask)",
            "providers.cpu.allocate(pod, container, None)",
        ),
        (
            "memory is taken anywhere",
            "Scope._allocate",
            "providers.memory.allocate(pod, container, affinity)",
            "providers.memory.allocate(pod, container, NO_AFFINITY)",
        ),
        (
            "CPUs of a whole pod are taken anywhere",
            "Scope._allocate_whole",
            "providers.cpu.allocate_pod(pod, affinity.mask)",
            "providers.cpu.allocate_pod(pod, None)",
        ),
        (
            "memory of a whole pod is taken anywhere",
            "Scope._allocate_whole",
            "providers.memory.allocate_pod(pod, affinity)",
            "providers.memory.allocate_pod(pod, NO_AFFINITY)",
        ),
    ],
    "topology/prefer_most_allocated_numa_node.py": [
        (
            "the emptiest NUMA node takes the pod",
            "most_allocated",
            "        if _beats(node, winner, signals):",
            "        if _beats(winner, node, signals):",
        ),
        (
            "a NUMA node's utilization is not rounded down",
            "utilization",
            "* _MOST // allocatable",
            "* _MOST / allocatable",
        ),
        ("a NUMA node is fuller than full", "utilization", "min(assigned, allocatable) * _MOST", "assigned * _MOST"),
    ],
    "topology/numa_allocation_strategy.py": [
        (
            "an empty NUMA node has no score",
            "score",
            "max(1, utilization(allocated, allocatable))",
            "utilization(allocated, allocatable)",
        ),
        ("an average score is not rounded", "_average", "sum(known) // len(known)", "sum(known) / len(known)"),
        (
            "masks are walked by value",
            "_place_in_walk",
            "list(members(mask))",
            "[mask]",
        ),
    ],
    "topology/hints.py": [
        (
            "a device of several NUMA nodes counts only where a mask holds all of them",
            "Threshold.gathered",
            "for nodes, amount in self.groups if nodes & mask)",
            "for nodes, amount in self.groups if not nodes & ~mask)",
        ),
        (
            "align-by-socket prefers masks of more sockets too",
            "SocketRule.holds",
            "if nodes & mask) == self.count",
            "if nodes & mask) >= self.count",
        ),
        (
            "wider masks rank before narrower ones",
            "width_rank",
            "return width > wanted, abs(",
            "return width < wanted, abs(",
        ),
        ("the widest mask not preferred wins", "width_rank", "abs(width - wanted)", "-abs(width - wanted)"),
    ],
    "topology/merge.py": [
        (
            "without masks an impossible resource is admitted",
            "merge",
            "return Hint(info.nodes, certain)",
            "return Hint(info.nodes, True)",
        ),
        (
            "single-numa-node takes the highest NUMA node",
            "merge_single",
            "mask = tie_break([1 << node for node in members(common)])",
            "mask = 1 << common.bit_length() - 1",
        ),
        (
            "numa-allocation-strategy is without effect on what is not preferred",
            "_merge_tabled",
            "return Hint(strategy.fittest_of_walk(fittest, offered), preferred=False)",
            "return Hint(min(fittest), preferred=False)",
        ),
        (
            "single-numa-node takes any resource's masks",
            "merge_single",
            "common &= offer.preferred_nodes()",
            "common |= offer.preferred_nodes()",
        ),
        (
            "tables count a device of several NUMA nodes where a mask holds all of them",
            "_amounts",
            "total + amount if mask & nodes else total",
            "total + amount if mask & nodes == nodes else total",
        ),
        (
            "a mask over NUMA ids with gaps is read as one without",
            "_expand",
            "        return index\n",
            "        return index\n    if True:\n        return index\n",
        ),
    ],
    "topology/walk_time.py": [
        (
            "a merge of less than an hour passes for one that hangs",
            "is_too_long",
            "return permutations > MAX_PERMUTATIONS",
            "return permutations * 2 > MAX_PERMUTATIONS",
        ),
        (
            "lists add up instead of multiplying",
            "check_walk",
            "permutations = prod(lengths)",
            "permutations = sum(lengths)",
        ),
    ],
    "topology/wide.py": [
        (
            "a wide machine forgets that memory in use is preferred",
            "WideMerge._fittest_preferred_of",
            "masks = [mask for mask in hints.masks if hints.prefers(mask)]",
            "masks: list[int] = []",
        ),
        (
            "a wide machine takes memory in use that is not preferred",
            "WideMerge._fittest_preferred_of",
            "masks = [mask for mask in hints.masks if hints.prefers(mask)]",
            "masks = list(hints.masks)",
        ),
        (
            "a wide machine forgets the intersections with memory in use",
            "WideMerge.fittest_intersection",
            "named = set(_intersections(intersections, self._longest.masks, self._effort)) - {0}",
            "named: set[int] = set()",
        ),
        (
            "a wide machine forgets that a new group has several NUMA nodes",
            "_intersected",
            "max(1, family.least - outside.bit_count())",
            "1",
        ),
        (
            "the richest NUMA nodes tell how long a list is at least",
            "poorest_width",
            "sorted(amounts.values())):\n        if gathered",
            "sorted(amounts.values(), reverse=True)):\n        if gathered",
        ),
    ],
    "topology/search.py": [
        (
            "a wide machine takes masks of fewer sockets too",
            "preferred_families",
            "(*family.thresholds, *demands)",
            "family.thresholds",
        ),
        (
            "a wide machine takes NUMA nodes with other amounts for interchangeable",
            "_interchangeable",
            "(number, 0 if mask.bit_count() == 1 else mask, amount)",
            "(number, 0 if mask.bit_count() == 1 else mask, 0)",
        ),
        (
            "a wide machine gives up on close NUMA nodes too early",
            "_Closest.may_improve",
            "2 * (self.distances[node][node] +",
            "4 * (self.distances[node][node] +",
        ),
        (
            "a wide machine weighs distances one way only",
            "_Closest.__init__",
            "distances[one][other] + distances[other][one]",
            "2 * distances[one][other]",
        ),
    ],
    "cpu/options.py": [
        (
            "options that exclude each other do so though one is off",
            "read_options",
            "if values.get(one) and values.get(other):",
            "if one in values and other in values:",
        ),
    ],
    "cpu/topology.py": [
        (
            "the largest core tells how many threads a core has",
            "_topology",
            "cpus_per_core=count // len(machine.cores)",
            "cpus_per_core=max(threads.bit_count() for threads in cores.values())",
        ),
        (
            "the largest socket tells how many CPUs a socket has",
            "_topology",
            "cpus_per_socket=count // len(sockets)",
            "cpus_per_socket=max(cpus.bit_count() for cpus in sockets.values())",
        ),
        (
            "the smallest cache tells how many CPUs a cache has",
            "_topology",
            "cpus_per_uncore_cache=count // len(caches)",
            "cpus_per_uncore_cache=min(cpus.bit_count() for cpus in caches.values())",
        ),
        (
            "a CPU's siblings are not told",
            "CPUTopology.siblings",
            "                together |= threads",
            "                together |= threads & cpus",
        ),
        (
            "a machine without CPUs is told in other words",
            "discover",
            '"could not detect number of cpus"',
            '"no cpus provided"',
        ),
    ],
    "cpu/static.py": [
        (
            "CPUs that are in the shared pool too are the pod's",
            "CPUManager._is_restored",
            " or self.bubble & self.pool",
            "",
        ),
        (
            "a share without those before it is the pod's",
            "CPUManager._is_restored",
            "self.assigned.keys() == set(names[: len(self.assigned)])",
            "True",
        ),
        (
            "what cannot be divided is lost in the next release too",
            "CPUManager.allocate_pod",
            "self.pool |= bubble",
            "pass",
        ),
        (
            "half a reserved CPU counts as none",
            "start",
            "-(-settings.reserved_cpu_millis // 1000)",
            "settings.reserved_cpu_millis // 1000",
        ),
        (
            "siblings of reserved CPUs count as free cores",
            "start",
            "reserved, topology.siblings(reserved))",
            "reserved, reserved)",
        ),
        (
            "reserved CPUs are the highest, not those that a request would get",
            "start",
            "reserved = settings.reserved_cpus or _take_reserved(topology, count, options, gates)",
            "reserved = settings.reserved_cpus or (1 << count) - 1",
        ),
        (
            "full-pcpus-only counts cores that an init container left for reuse",
            "CPUManager._smt_misalignment",
            "available = (self.pool & ~",
            "available = ((self.pool | self._reusable) & ~",
        ),
        (
            "distribute-cpus-across-cores is without effect",
            "_strategy",
            "        options.distribute_across_cores,\n",
            "        False,\n",
        ),
        (
            "prefer-align-cpus-by-uncorecache is without effect",
            "_strategy",
            "options.prefer_uncore_cache,\n",
            "False,\n",
        ),
        (
            "hints of a container that has its CPUs look elsewhere",
            "CPUManager.hints",
            "return [self._impossible(count)]\n        return [self._offer(assigned, 0, count)]",
            "return [self._impossible(count)]\n        return [self._offer(self._available, 0, count)]",
        ),
        (
            "scope pod looks at the CPUs of one container alone",
            "CPUManager.pod_hints",
            "                assigned |= cpus\n",
            "                assigned = cpus\n",
        ),
        (
            "the preferred width counts free CPUs only",
            "CPUManager._hints",
            "least_width(Family(universe, (sizes,)), self._effort)",
            "least_width(Family(universe, (per_node(free, count),)), self._effort)",
        ),
        (
            "align-by-socket rounds the sockets that a request needs down",
            "CPUManager._socket_rule",
            "-(-width // per_socket))",
            "width // per_socket)",
        ),
        (
            "CPUs beyond the affinity are not given",
            "CPUManager._allocate_cpus",
            "rest = take(topology, free & ~taken,",
            "rest = take(topology, (free if affinity is None else 0) & ~taken,",
        ),
        (
            "sidecars leave their CPUs to later containers",
            "CPUManager._update_reusable",
            "        if container.kind is ContainerKind.INIT:\n            self._reusable |= cpus",
            "        if container.kind is not ContainerKind.APP:\n            self._reusable |= cpus",
        ),
        (
            "sidecars of a whole pod use no CPUs up",
            "CPUManager._divide",
            "                if container.kind is not ContainerKind.INIT:\n                    left &= ~taken",
            "                if container.kind is ContainerKind.APP:\n                    left &= ~taken",
        ),
        (
            "a pod needs its init containers' CPUs beside the others",
            "CPUManager.requested_by_pod",
            "return largest_need((each.kind, self.requested(pod, each)) for each in pod.containers)",
            "return sum(self.requested(pod, each) for each in pod.containers)",
        ),
    ],
    "cpu/assignment.py": [
        (
            "an affinity of more NUMA nodes than there are counts",
            "_DistributedSearch.sizes",
            "if self.strategy.least_nodes <= most:",
            "if self.strategy.least_nodes:",
        ),
        (
            "single CPUs are handed out as a remainder of whole cores",
            "_DistributedSearch._usable",
            "if self.strategy.whole_groups",
            "if not self.strategy.whole_groups",
        ),
        (
            "the remainder comes from the first members",
            "_DistributedSearch._score",
            "tuple([nodes[place] for place in scored.remainder])",
            "tuple(nodes[: len(scored.remainder)])",
        ),
        (
            "NUMA nodes beside the members do not count for the balance",
            "_DistributedSearch._scored",
            "(Counter(self.free.values()) - Counter(left.values())).elements()",
            "()",
        ),
        (
            "the emptiest elements come first",
            "_Accumulator._sorted",
            "        keyed.sort()\n",
            "        keyed.sort(reverse=True)\n",
        ),
        (
            "elements come in the order of their ids alone",
            "_Accumulator._sorted",
            "keyed = [((elements[each] & free).bit_count(), each)",
            "keyed = [(0, each)",
        ),
        (
            "of equally full elements the highest id comes first",
            "_Accumulator._sorted",
            "        keyed.sort()\n",
            "        keyed.sort(key=lambda each: (each[0], -each[1]))\n",
        ),
        (
            "caches are not sorted by NUMA node",
            "_Accumulator.uncore_caches",
            "            for node in self.numa_nodes()\n            for cache",
            "            for node in topology.numa_nodes\n            for cache",
        ),
        (
            "a fully free socket is told by itself, not by the average",
            "_Accumulator.take_full_sockets",
            "None if own_sizes else self.topology.cpus_per_socket",
            "None",
        ),
        (
            "a fully free core is told by itself, not by the average",
            "_Accumulator.take_full_cores",
            "None if own_sizes else self.topology.cpus_per_core",
            "None",
        ),
        (
            "too many CPUs of a cache are taken",
            "_Accumulator._take_part_of",
            "if cpus.bit_count() == self.needed:",
            "if cpus.bit_count() >= self.needed:",
        ),
        (
            "CPUs taken twice count once",
            "_Accumulator.take",
            "        self.result |= cpus\n",
            "        cpus &= ~self.result\n        self.result |= cpus\n",
        ),
        (
            "arrays grow by one",
            "_Combination.append",
            "room = max(1, 2 * len(self.array))",
            "room = len(self.array) + 1",
        ),
        (
            "the least balanced combination wins",
            "_DistributedSearch.best",
            "choice.balance) < (not best.on_one_socket",
            "choice.balance) > (not best.on_one_socket",
        ),
        (
            "the remainder goes to as few NUMA nodes as can be",
            "_DistributedSearch._best_remainder",
            "for size in range(len(candidates), 0, -1):",
            "for size in range(1, len(candidates) + 1):",
        ),
        (
            "the even share is not a number of whole groups",
            "_DistributedSearch.even_share",
            "even = self.count // len(free) // self.group * self.group",
            "even = self.count // len(free)",
        ),
        (
            "the deviation is not rounded",
            "_round",
            "return (whole + 1 if scaled - whole >= 0.5 else whole) / 1000",
            "return number",
        ),
        (
            "halves are rounded to the even neighbour",
            "_round",
            "(whole + 1 if scaled - whole >= 0.5 else whole) / 1000",
            "round(number, 3)",
        ),
    ],
    "memory/machine_state.py": [
        (
            "the highest NUMA node of a group is filled first",
            "MachineState.reserve",
            "for number in members(mask):\n            node =",
            "for number in reversed(list(members(mask))):\n            node =",
        ),
        (
            "the highest NUMA node of a group is freed first",
            "MachineState.release",
            "for number in members(block.numa_nodes):\n            node = self.nodes.get(number)",
            "for number in reversed(list(members(block.numa_nodes))):\n            node = self.nodes.get(number)",
        ),
        (
            "a block of no bytes is no assignment",
            "MachineState.reserve",
            "            node.assignments += 1\n",
            "            node.assignments += size > 0\n",
        ),
        (
            "a NUMA node gives more than it has",
            "_NUMANodeState.give",
            "given = min(size, max(0, self.free.get(resource, 0)))",
            "given = size",
        ),
        (
            "a NUMA node takes back more than it gave",
            "_NUMANodeState.take_back",
            "returned = min(size, self.reserved.get(resource, 0))",
            "returned = size",
        ),
        (
            "a node with blocks of its own joins a group",
            "MachineState.suits",
            "not node.assignments or (node.cells",
            "node.cells.bit_count() == 1 or (node.cells",
        ),
        (
            "a huge page size that is not there has none free",
            "MachineState._amount",
            "            raise _missing(resource, node)",
            "            return 0",
        ),
    ],
    "memory/static.py": [
        (
            "huge pages score by ordinary memory",
            "MemoryManager.usage",
            "reserved.get(resource, 0)",
            'reserved.get("memory", 0)',
        ),
        (
            "the preferred width counts free memory only",
            "MemoryManager._calculated",
            "Family(everything, tuple(could))",
            "Family(everything, tuple(free))",
        ),
        (
            "memory that no machine of this size has is impossible",
            "MemoryManager._calculated",
            "        if width is None:\n            return Answer.NO_PREFERENCE",
            "        if width is None:\n            return Answer.IMPOSSIBLE",
        ),
        (
            "memory that fits nowhere is impossible",
            "MemoryManager._calculated",
            "return hints_or(Answer.NO_PREFERENCE, Hints(families, masks, width))",
            "return hints_or(Answer.IMPOSSIBLE, Hints(families, masks, width))",
        ),
        (
            "the extended affinity forgets the one it extends",
            "MemoryManager._final_mask",
            "found = self._best(requests, including=mask)",
            "found = self._best(requests)",
        ),
        (
            "a pod needs its init containers' memory beside the others",
            "MemoryManager._requested_by_pod",
            "largest_need((kind, own.get(name, 0)) for kind, own in needs)",
            "sum(own.get(name, 0) for kind, own in needs)",
        ),
        (
            "memory of init containers adds up for reuse",
            "MemoryManager._update_reusable",
            "self._reusable[key] = max(reusable, block.size)",
            "self._reusable[key] = reusable + block.size",
        ),
        (
            "sidecars leave their memory to later containers",
            "MemoryManager._update_reusable",
            "            if container.kind is ContainerKind.INIT:\n                self._reusable[key]",
            "            if container.kind is not ContainerKind.APP:\n                self._reusable[key]",
        ),
        (
            "reused memory is reserved twice",
            "MemoryManager.allocate",
            "max(0, size - self._reusable.get((mask, resource), 0))",
            "size",
        ),
        (
            "half a byte of memory is rounded",
            "bytes_by_resource",
            "        if size is None:\n            return None\n",
            "        if size is None:\n            size = 0\n",
        ),
        (
            "huge pages without memory crash nothing",
            "MemoryManager._best",
            "                return None\n            raise KubeletBreaks(",
            "                return None\n            return None\n            raise KubeletBreaks(",
        ),
        (
            "policy BestEffort starts on Linux",
            "check_policy",
            'if name == "BestEffort" and',
            'if name == "BestEfforts" and',
        ),
    ],
    "devices/manager.py": [
        (
            "device hints are made from requests",
            "DeviceManager.hints",
            "self._requests(container.resources.limits):\n            held",
            "self._requests(container.resources.requests):\n            held",
        ),
        (
            "devices are given by requests",
            "DeviceManager.allocate",
            "self._requests(container.resources.limits):\n            chosen",
            "self._requests(container.resources.requests):\n            chosen",
        ),
        (
            "unhealthy devices are given",
            "DevicePool.free",
            "return self.healthy - self.in_use",
            "return set(self.all) - self.in_use",
        ),
        ("devices are given twice", "DevicePool.free", "return self.healthy - self.in_use", "return set(self.healthy)"),
        (
            "the preferred width counts free devices only",
            "DeviceManager._generate",
            "Threshold(self._groups(pool, pool.all), count)",
            "Threshold(self._groups(pool, free), count)",
        ),
        (
            "devices of the affinity do not come first",
            "DeviceManager._choose",
            "for each in (aligned, free - aligned):",
            "for each in (free,):",
        ),
        (
            "a container that runs is not asked whether its request has changed",
            "DeviceManager._choose",
            "if allocated is not None and len(allocated) != count:",
            "if allocated is not None and len(allocated) != count and container.name not in self.running:",
        ),
        (
            "a plugin that is not back has never registered",
            "pools_of",
            "{resource: [] for resource in stopped}",
            "{}",
        ),
        (
            "sidecars leave their devices to later containers",
            "DeviceManager.allocate",
            "if container.kind is ContainerKind.INIT else reusable - held",
            "if container.kind is not ContainerKind.APP else reusable - held",
        ),
        (
            "a pod needs its init containers' devices beside the others",
            "_pod_limits",
            "name: largest_need((container.kind, container.resources.limits.get(name, 0)) for",
            "name: sum(container.resources.limits.get(name, 0) for",
        ),
    ],
    "lifecycle/predicate.py": [
        (
            "devices that are allocated do not count as there",
            "_sanitized",
            "max(number, capacity.get(resource, 0))",
            "capacity.get(resource, 0)",
        ),
    ],
    "lifecycle/node_affinity.py": [
        (
            "a greater number is a smaller one",
            "_compares",
            'requirement.operator == "Gt"',
            'requirement.operator == "Lt"',
        ),
    ],
    "startup/defaults.py": [
        (
            "a zero of the file stays",
            "with_defaults",
            "filled[name] = filled.get(name) or default",
            "filled.setdefault(name, default)",
        ),
    ],
    "startup/go_text.py": [
        ("large floats are printed in full", "floating", "1e-4 <= abs(number) < 1e6", "1e-4 <= abs(number) < 1e21"),
    ],
}


def mutants() -> Iterator[Mutant]:
    """The whole list."""
    for file, broken in _BROKEN.items():
        for breaks, function, old, new in broken:
            yield Mutant(breaks, file, function, old, new)

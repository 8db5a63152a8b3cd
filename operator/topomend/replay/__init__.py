"""The kubelet's topology admission of a pod, replayed exactly and with its reasons.

``admission.admit`` takes a node's state and a pod and returns the verdict and the next state. The room does no I/O and
reads no clock. Each rule is in a module that is named after the kubelet's file (below pkg/kubelet/cm):

| module | the kubelet's file |
|---|---|
| ``admission``, ``scopes`` | topologymanager/scope.go, scope_container.go, scope_pod.go, scope_none.go |
| ``container_manager`` | container_manager_linux.go |
| ``errors`` | admission/errors.go |
| ``topology/hints``, ``topology/merge``, ``topology/wide`` | topologymanager/policy.go |
| ``topology/policies``, ``topology/options`` | topologymanager/policy_*.go |
| ``topology/distances`` | topologymanager/numa_info.go |
| ``cpu/static``, ``cpu/assignment``, ``cpu/topology`` | cpumanager/policy_static.go, cpu_assignment.go, topology/ |
| ``memory/static``, ``memory/machine_state`` | memorymanager/policy_static.go, state/ |
| ``devices/manager`` | devicemanager/manager.go, topology_hints.go |
| ``qos``, ``gates``, ``resize`` | pkg/apis/core/v1/helper/qos, pkg/features, pkg/kubelet/allocation |

Three modules have no counterpart in the kubelet. ``topology/walk_time`` estimates how long the kubelet takes.
``topology/search`` avoids the kubelet's walk over all masks. ``fast_path`` answers for thousands of nodes.
"""

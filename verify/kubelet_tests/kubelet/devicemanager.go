package devicemanager

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
)

func (m *ManagerImpl) replayHints(function string, pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	arguments := m.replayArguments(string(pod.UID))
	arguments["pod"], arguments["container"] = pod, container
	arguments["reusable"] = lists(m.devicesToReuse[string(pod.UID)])
	var answer map[string][]topomend.Hint
	topomend.Ask(function, arguments, &answer)
	return topologymanager.KubeletHints(answer)
}

func (m *ManagerImpl) replayDevices(uid, container, resource string, required int, reusable sets.Set[string], running bool, affinity topologymanager.TopologyHint) (sets.Set[string], error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	arguments := m.replayArguments(uid)
	arguments["uid"], arguments["container"], arguments["resource"], arguments["required"] = uid, container, resource, required
	arguments["reusable"] = lists(map[string]sets.Set[string]{resource: reusable})
	arguments["running"], arguments["affinity"] = running, topologymanager.ReplayHint(affinity)
	var answer struct {
		Devices []string
		Refusal topomend.Refusal
	}
	topomend.Ask("devicesToAllocate", arguments, &answer)
	if answer.Refusal.Reason != "" {
		return nil, errors.New(answer.Refusal.Error)
	}
	if len(answer.Devices) == 0 {
		return nil, nil
	}
	if err := m.reserve(uid, container, resource, answer.Devices); err != nil {
		return nil, err
	}
	if m.allocatedDevices[resource] == nil {
		m.allocatedDevices[resource] = sets.New[string]()
	}
	m.allocatedDevices[resource].Insert(answer.Devices...)
	return sets.New(answer.Devices...), nil
}

// replayArguments is the manager's state. The caller holds its mutex.
func (m *ManagerImpl) replayArguments(uid string) map[string]any {
	devices := map[string]map[string][]int64{}
	for resource, instances := range m.allDevices {
		devices[resource] = map[string][]int64{}
		for id, device := range instances {
			devices[resource][id] = nil
			if device.Topology != nil {
				devices[resource][id] = []int64{}
				for _, node := range device.Topology.Nodes {
					devices[resource][id] = append(devices[resource][id], node.ID)
				}
			}
		}
	}
	m.podDevices.RLock()
	defer m.podDevices.RUnlock()
	allocated := map[string]map[string][]string{}
	for container, resources := range m.podDevices.devs[uid] {
		allocated[container] = map[string][]string{}
		for resource, info := range resources {
			if isCommitted(info) {
				allocated[container][resource] = sets.List(info.deviceIds.Devices())
			}
		}
	}
	return map[string]any{
		"numaNodes": m.numaNodes, "devices": devices, "allocated": allocated,
		"healthy": lists(m.healthyDevices), "inUse": lists(m.allocatedDevices),
	}
}

func lists(devices map[string]sets.Set[string]) map[string][]string {
	listed := map[string][]string{}
	for resource, ids := range devices {
		listed[resource] = sets.List(ids)
	}
	return listed
}

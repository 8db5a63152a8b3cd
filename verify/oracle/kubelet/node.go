package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// Node is one kubelet's four managers and the pods that are active on it, in the order of their admission. Pods that
// went while its sources were not ready are in gone: the managers purge them later.
type Node struct {
	sources  *sourcesReady
	gone     []*v1.Pod
	topology topologymanager.Manager
	devices  *devicemanager.ManagerImpl
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
	pods     []*v1.Pod
}

type sourcesReady struct{ waiting bool }

func (*sourcesReady) AddSource(string) {}
func (s *sourcesReady) AllReady() bool { return !s.waiting }

// startNode builds the managers in the kubelet's order (cm/container_manager_linux.go:NewContainerManager, Start), so
// that of several reasons not to start the kubelet's own is told.
func startNode(given *Case) (*Node, error) {
	node, err := newNode(given)
	if err != nil {
		return nil, err
	}
	cpus, _ := made[cpustate.State](cpustate.NewMemoryState)
	memory, _ := made[memorystate.State](memorystate.NewMemoryState)
	if err := node.start(cpus, memory); err != nil {
		return nil, err
	}
	return node, connectPlugins(node.devices, given.Devices)
}

// restart is a new kubelet that finds what the old one had written down, and no pod is purged before it is admitted
// again: all that were active stay so until they are refused or end. The plugins are back but for those that are away.
func (n *Node) restart(given *Case, step *Step) (*Node, error) {
	node, err := newNode(given)
	if err != nil {
		return nil, err
	}
	node.pods = n.pods
	if err := node.start(get[cpustate.State](n.cpus, "state"), get[memorystate.State](n.memory, "state")); err != nil {
		return nil, err
	}
	hand(node.devices, n.devices, "podDevices")
	hand(node.devices, n.devices, "allocatedDevices")
	if step.Found != nil {
		node.sources.waiting, node.gone = true, n.gone
		node.find(*step.Found)
	}
	back := slices.DeleteFunc(slices.Clone(given.Devices), func(device Device) bool {
		away := slices.Contains(step.Away, device.Resource)
		if away {
			node.remember(device.Resource)
		}
		return away
	})
	return node, connectPlugins(node.devices, back)
}

// find gives the managers what the runtime knows of containers, an id for each instance
// (cm/container_manager_linux.go:buildContainerMapAndRunningSetFromRuntime).
func (n *Node) find(containers []FoundContainer) {
	running := sets.New[string]()
	known := []containermap.ContainerMap{containermap.NewContainerMap(), containermap.NewContainerMap(), containermap.NewContainerMap()}
	for index, container := range containers {
		id := fmt.Sprintf("found-%d", index)
		for _, each := range known {
			each.Add(container.PodUID, container.Name, id)
		}
		if container.Running {
			running.Insert(id)
		}
	}
	set(n.devices, "containerMap", known[0])
	set(n.devices, "containerRunningSet", running)
	set(n.cpus, "containerMap", known[1])
	set(n.memory, "containerMap", known[2])
}

// remember is what the device manager knows of a plugin that had registered before the kubelet's restart and is not
// back (devicemanager/manager.go:readCheckpoint).
func (n *Node) remember(resource string) {
	get[map[string]sets.Set[string]](n.devices, "healthyDevices")[resource] = sets.New[string]()
	get[map[string]sets.Set[string]](n.devices, "unhealthyDevices")[resource] = sets.New[string]()
}

func (n *Node) connect(resources []string, devices []Device) {
	back := slices.DeleteFunc(slices.Clone(devices), func(device Device) bool {
		return !slices.Contains(resources, device.Resource)
	})
	if err := connectPlugins(n.devices, back); err != nil {
		panic(err)
	}
}

func newNode(given *Case) (*Node, error) {
	if err := setFeatureGates(given.Kubelet.FeatureGates); err != nil {
		return nil, err
	}
	machine, err := machineInfo(&given.Machine)
	if err != nil {
		return nil, err
	}
	settings, node := &given.Kubelet, &Node{sources: &sourcesReady{}}
	specificCPUs, err := cpuset.Parse(settings.ReservedSystemCPUs)
	if err != nil {
		return nil, err
	}
	reservation := nodeAllocatableReservation(settings, specificCPUs)
	node.topology, err = made[topologymanager.Manager](topologymanager.NewManager,
		machine.Topology, settings.TopologyManagerPolicy, settings.TopologyManagerScope, settings.TopologyManagerPolicyOptions)
	if err != nil {
		return nil, err
	}
	node.devices, err = made[*devicemanager.ManagerImpl](newDeviceManager, filepath.Join(deviceFolder(), "kubelet.sock"), machine.Topology, node.topology)
	if err != nil {
		return nil, err
	}
	call(node.topology.AddHintProvider, listedOrder{node.devices, listedRank(given.Devices)})
	node.cpus, err = made[cpumanager.Manager](cpumanager.NewManager, settings.CPUManagerPolicy, settings.CPUManagerPolicyOptions,
		time.Duration(0), machine, specificCPUs, reservation, "", node.topology)
	if err != nil {
		return nil, err
	}
	call(node.topology.AddHintProvider, node.cpus)
	node.memory, err = made[memorymanager.Manager](memorymanager.NewManager, settings.MemoryManagerPolicy, machine, reservation,
		memoryReservations(settings), "", node.topology)
	if err != nil {
		return nil, err
	}
	call(node.topology.AddHintProvider, node.memory)
	return node, nil
}

// start does what the managers' own Start methods do, with states in memory in place of the checkpoint files.
func (n *Node) start(cpus cpustate.State, memory memorystate.State) error {
	set[cpustate.State](n.cpus, "state", cpus)
	set(n.cpus, "activePods", cpumanager.ActivePodsFunc(n.activePods))
	set[config.SourcesReady](n.cpus, "sourcesReady", n.sources)
	set(n.cpus, "containerMap", containermap.NewContainerMap())
	if err := failure(call(get[cpumanager.Policy](n.cpus, "policy").Start, cpus)); err != nil {
		return err
	}
	set[memorystate.State](n.memory, "state", memory)
	set(n.memory, "activePods", memorymanager.ActivePodsFunc(n.activePods))
	set[config.SourcesReady](n.memory, "sourcesReady", n.sources)
	set(n.memory, "containerMap", containermap.NewContainerMap())
	if err := failure(call(get[memorymanager.Policy](n.memory, "policy").Start, memory)); err != nil {
		return err
	}
	set(n.devices, "activePods", devicemanager.ActivePodsFunc(n.activePods))
	set[config.SourcesReady](n.devices, "sourcesReady", n.sources)
	set[checkpointmanager.CheckpointManager](n.devices, "checkpointManager", noCheckpoints{})
	return nil
}

func (n *Node) activePods() []*v1.Pod { return slices.Clone(n.pods) }

func (n *Node) take(given *Case, step *Step, answer *StepAnswer) {
	switch {
	case step.Admit != nil:
		n.admit(given.Node, *step.Admit, answer)
	case step.Start != nil:
		n.startContainers(step.Start)
	case step.End != nil:
		for _, pod := range n.pods {
			if isNamed(pod, step.End) {
				n.leave(pod)
			}
		}
	case step.Ready:
		n.sources.waiting, n.gone = false, nil
	case step.Connect != nil:
		n.connect(step.Connect, given.Devices)
	}
	n.purge()
	answer.State = n.state()
}

// admit asks as the kubelet's admission does: the pod is active while it is being admitted, and no more once refused
// (kubelet.go:HandlePodAdditions, rejectPod). The prefix of the message is rejectPod's.
func (n *Node) admit(object *json.RawMessage, document json.RawMessage, answer *StepAnswer) {
	pod, err := readPod(document)
	if err != nil {
		panic(fmt.Sprintf("not a pod: %v", err))
	}
	same := func(other *v1.Pod) bool { return other.UID == pod.UID }
	n.gone = slices.DeleteFunc(n.gone, same)
	n.pods = append(slices.DeleteFunc(n.pods, same), pod)
	asked := adding(&lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: n.pods[:len(n.pods)-1]})
	result := call(n.topology.Admit, asked)[0].Interface().(lifecycle.PodAdmitResult)
	if result.Admit && object != nil {
		result, answer.Reasons = n.fit(*object, asked)
	}
	answer.Admitted, answer.Reason, answer.Containers = result.Admit, result.Reason, n.containers(pod)
	if !result.Admit {
		answer.Message = "Pod was rejected: " + result.Message
		n.leave(pod)
	}
}

// leave makes a pod inactive.
func (n *Node) leave(pod *v1.Pod) {
	n.pods = slices.DeleteFunc(slices.Clone(n.pods), func(active *v1.Pod) bool { return active.UID == pod.UID })
	if n.sources.waiting {
		n.gone = append(n.gone, pod)
	}
}

// readPod is the pod as the kubelet gets it from the API server: with defaults filled in, quantities in canonical form.
func readPod(document json.RawMessage) (*v1.Pod, error) {
	written := &v1.Pod{}
	if err := json.Unmarshal(document, written); err != nil {
		return nil, err
	}
	corev1.SetObjectDefaults_Pod(written)
	canonical, err := json.Marshal(written)
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{}
	if err := json.Unmarshal(canonical, pod); err != nil {
		return nil, err
	}
	if pod.UID == "" {
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	}
	return pod, nil
}

// startContainers tells the managers what the kubelet tells them before each container starts
// (cm/internal_container_lifecycle.go:PreStartContainer).
func (n *Node) startContainers(start *Start) {
	for _, pod := range n.pods {
		if !isNamed(pod, &start.PodName) {
			continue
		}
		for _, container := range allContainers(pod) {
			if !slices.Contains(start.Containers, container.Name) {
				continue
			}
			id := string(pod.UID) + "/" + container.Name
			call(n.cpus.AddContainer, pod, container, id)
			call(n.memory.AddContainer, pod, container, id)
			call(n.topology.AddContainer, pod, container, id)
		}
	}
}

// purge has each manager drop what pods hold that are no more: they do so whenever they are asked for hints, once the
// kubelet's sources are ready.
func (n *Node) purge() {
	nobody := &v1.Pod{}
	call(n.devices.GetPodTopologyHints, nobody)
	call(n.cpus.GetPodTopologyHints, nobody)
	call(n.memory.GetPodTopologyHints, nobody)
}

func (n *Node) containers(pod *v1.Pod) []Container {
	var answer []Container
	for _, container := range allContainers(pod) {
		hint := call(n.topology.GetAffinity, string(pod.UID), container.Name)[0].Interface().(topologymanager.TopologyHint)
		held := n.held(string(pod.UID), container.Name)
		held.Affinity, held.Preferred = maskIDs(hint.NUMANodeAffinity), hint.Preferred
		answer = append(answer, held)
	}
	return answer
}

func (n *Node) held(podUID, name string) Container {
	held := Container{Name: name, CPUs: n.cpus.GetExclusiveCPUs(podUID, name).String(), Devices: map[string][]string{}}
	blocks := call(n.memory.GetMemory, podUID, name)[0].Interface().([]memorystate.Block)
	if blocks != nil {
		held.Memory = []Block{} // served with nothing, which is not the same as not served
	}
	for _, block := range blocks {
		held.Memory = append(held.Memory, Block{string(block.Type), block.NUMAAffinity, block.Size})
	}
	for resource, devices := range n.devices.GetDevices(podUID, name) {
		held.Devices[resource] = slices.Sorted(maps.Keys(devices))
	}
	return held
}

func (n *Node) state() *State {
	cpus := get[cpustate.State](n.cpus, "state")
	state := &State{
		DefaultCPUs: cpus.GetDefaultCPUSet().String(),
		Devices:     map[string][]string{},
		Pods:        map[string][]Container{},
	}
	books := n.memory.State().GetMachineState()
	for _, id := range slices.Sorted(maps.Keys(books)) {
		book := books[id]
		node := NUMANodeMemory{NUMANode: id, Assignments: book.NumberOfAssignments, Cells: book.Cells, Reserved: map[string]uint64{}, Free: map[string]uint64{}}
		for resource, table := range book.MemoryMap {
			node.Reserved[string(resource)], node.Free[string(resource)] = table.Reserved, table.Free
		}
		state.Memory = append(state.Memory, node)
	}
	for _, pod := range slices.Concat(n.pods, n.gone) {
		var held []Container
		for _, container := range allContainers(pod) {
			held = append(held, n.held(string(pod.UID), container.Name))
		}
		state.Pods[pod.Namespace+"/"+pod.Name] = held
	}
	for resource, ids := range allocatedDevices(n.devices) {
		if len(ids) > 0 {
			state.Devices[resource] = slices.Sorted(maps.Keys(ids))
		}
	}
	return state
}

func allContainers(pod *v1.Pod) []*v1.Container {
	var all []*v1.Container
	for index := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[index])
	}
	for index := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[index])
	}
	return all
}

func isNamed(pod *v1.Pod, name *PodName) bool {
	return pod.Namespace == name.Namespace && pod.Name == name.Name
}

// nodeAllocatableReservation is cm/node_container_manager_linux.go:GetNodeAllocatableReservation: zero entries are
// absent. A set of reserved CPUs takes the place of the amounts (cmd/kubelet/app/server.go:run). Huge pages cannot be reserved here.
func nodeAllocatableReservation(settings *Settings, specific cpuset.CPUSet) v1.ResourceList {
	cpu := settings.KubeReserved[v1.ResourceCPU]
	if !specific.IsEmpty() {
		cpu = *resource.NewQuantity(int64(specific.Size()), resource.DecimalSI)
	}
	memory := resource.NewQuantity(0, resource.BinarySI)
	for _, reservation := range settings.ReservedMemory {
		memory.Add(reservation.Limits[v1.ResourceMemory])
	}
	reservation := v1.ResourceList{}
	if !cpu.IsZero() {
		reservation[v1.ResourceCPU] = cpu
	}
	if !memory.IsZero() {
		reservation[v1.ResourceMemory] = *memory
	}
	return reservation
}

func memoryReservations(settings *Settings) []kubeletconfig.MemoryReservation {
	var reservations []kubeletconfig.MemoryReservation
	for _, reservation := range settings.ReservedMemory {
		reservations = append(reservations, kubeletconfig.MemoryReservation{NumaNode: reservation.NUMANode, Limits: reservation.Limits})
	}
	return reservations
}

// deviceFolder is where the device manager would put its socket; nothing is written there.
var deviceFolder = sync.OnceValue(func() string { return os.TempDir() })

// listedRank is the place of each device ("resource/id") in the case.
func listedRank(devices []Device) map[string]int {
	rank := map[string]int{}
	for index, device := range devices {
		rank[device.Resource+"/"+device.ID] = index
	}
	return rank
}

var gatesInForce = map[string]bool{}

// setFeatureGates gives the gates of the case their values and those of the case before their defaults again. A gate
// that this version of the kubelet does not know is left out.
func setFeatureGates(wanted map[string]bool) error {
	if maps.Equal(wanted, gatesInForce) {
		return nil
	}
	values := map[string]bool{}
	for feature, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if value, asked := wanted[string(feature)]; asked {
			values[string(feature)] = value
		} else if _, before := gatesInForce[string(feature)]; before {
			values[string(feature)] = spec.Default
		}
	}
	gatesInForce = maps.Clone(wanted)
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(values)
}

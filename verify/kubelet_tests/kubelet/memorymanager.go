package memorymanager

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
)

func (p *staticPolicy) replayHints(function string, s state.State, pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	var answer map[string][]topomend.Hint
	topomend.Ask(function, p.replayArguments(s, pod, container), &answer)
	return topologymanager.KubeletHints(answer)
}

func (p *staticPolicy) replayAllocate(function string, s state.State, pod *v1.Pod, container *v1.Container, affinity topologymanager.TopologyHint) error {
	arguments := p.replayArguments(s, pod, container)
	arguments["affinity"] = topologymanager.ReplayHint(affinity)
	var answer struct {
		MachineState state.NUMANodeMap
		Blocks       map[string][]state.Block
		PodBlocks    []state.Block
		Reusable     []struct {
			Nodes []int
			Sizes map[v1.ResourceName]uint64
		}
		Refusal   topomend.Refusal
		Exclusive []string
	}
	topomend.Ask(function, arguments, &answer)
	if answer.Refusal.Reason != "" {
		if container == nil {
			countRefusedPod()
		}
		return kubeletError(answer.Refusal)
	}
	uid := string(pod.UID)
	if !reflect.DeepEqual(answer.MachineState, s.GetMachineState()) {
		s.SetMachineState(answer.MachineState)
	}
	if len(answer.PodBlocks) > 0 {
		setPodBlocks(s, uid, answer.PodBlocks)
	}
	if container == nil && len(answer.Blocks) > 0 {
		countPod(pod, answer.Exclusive)
	}
	for name, blocks := range answer.Blocks {
		if before := s.GetMemoryBlocks(uid, name); before == nil || !reflect.DeepEqual(before, blocks) {
			s.SetMemoryBlocks(uid, name, blocks)
		}
	}
	if len(answer.Reusable) > 0 {
		p.initContainersReusableMemory = reusableMemory{uid: {}}
	}
	for _, reusable := range answer.Reusable {
		mask, err := bitmask.NewBitMask(reusable.Nodes...)
		if err != nil {
			return err
		}
		p.initContainersReusableMemory[uid][mask.String()] = reusable.Sizes
	}
	return nil
}

func (p *staticPolicy) replayArguments(s state.State, pod *v1.Pod, container *v1.Container) map[string]any {
	uid := string(pod.UID)
	return map[string]any{
		"pod": pod, "container": container,
		"machineState": s.GetMachineState(), "blocks": s.GetMemoryAssignments()[uid],
		"podBlocks": podBlocks(s, uid), "reusable": p.initContainersReusableMemory[uid],
	}
}

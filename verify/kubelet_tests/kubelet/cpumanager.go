package cpumanager

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
	"k8s.io/utils/cpuset"
)

func replayTake(function string, topo *topology.CPUTopology, available cpuset.CPUSet, count int, options map[string]any) (cpuset.CPUSet, error) {
	var answer struct{ CPUs, Error string }
	topomend.Ask(function, map[string]any{
		"topology": topo, "available": available.String(), "count": count, "options": options,
	}, &answer)
	if answer.Error != "" {
		return cpuset.New(), errors.New(answer.Error)
	}
	return parsedCPUs(answer.CPUs), nil
}

func (p *staticPolicy) replayCount(function string, pod *v1.Pod, container *v1.Container) int {
	var answer int
	topomend.Ask(function, map[string]any{"pod": pod, "container": container}, &answer)
	return answer
}

func (p *staticPolicy) replayHints(function string, s state.State, pod *v1.Pod, container *v1.Container) map[string][]topologymanager.TopologyHint {
	var answer map[string][]topomend.Hint
	topomend.Ask(function, p.replayArguments(s, pod, container), &answer)
	return topologymanager.KubeletHints(answer)
}

func (p *staticPolicy) replayAllocate(function string, s state.State, pod *v1.Pod, container *v1.Container, affinity topologymanager.TopologyHint) error {
	arguments := p.replayArguments(s, pod, container)
	arguments["affinity"] = topologymanager.ReplayHint(affinity)
	var answer struct {
		Pool, Bubble, Reusable string
		Assigned               map[string]string
		Exclusive              []string
		Refusal                topomend.Refusal
	}
	topomend.Ask(function, arguments, &answer)
	uid := string(pod.UID)
	if pool := parsedCPUs(answer.Pool); !pool.Equals(s.GetDefaultCPUSet()) {
		s.SetDefaultCPUSet(pool)
	}
	if bubble := parsedCPUs(answer.Bubble); bubble.Size() > 0 {
		setPodCPUs(s, uid, bubble)
	} else if podCPUs(s, uid).Size() > 0 {
		dropPodCPUs(s, uid)
	}
	for name := range s.GetCPUAssignments()[uid] {
		if _, ok := answer.Assigned[name]; !ok {
			s.Delete(uid, name)
		}
	}
	for name, text := range answer.Assigned {
		cpus := parsedCPUs(text)
		if before, ok := s.GetCPUSet(uid, name); !ok || !before.Equals(cpus) {
			s.SetCPUSet(uid, name, cpus)
		}
	}
	p.countState(s)
	if container != nil && answer.Refusal.Reason == "" && answer.Assigned[container.Name] != "" {
		p.cpusToReuse = map[string]cpuset.CPUSet{uid: parsedCPUs(answer.Reusable)}
	}
	if container == nil && answer.Refusal.Reason != "" {
		countRefusedPod()
	} else if container == nil && len(answer.Assigned) > 0 {
		countPod(pod, answer.Exclusive)
	}
	return kubeletError(answer.Refusal)
}

func (p *staticPolicy) replayArguments(s state.State, pod *v1.Pod, container *v1.Container) map[string]any {
	uid := string(pod.UID)
	assigned := map[string]string{}
	for name, cpus := range s.GetCPUAssignments()[uid] {
		assigned[name] = cpus.String()
	}
	return map[string]any{
		"pod": pod, "container": container,
		"topology": p.topology, "options": p.options,
		"reserved": p.reservedCPUs.String(), "reservedPhysical": p.reservedPhysicalCPUs.String(),
		"pool": s.GetDefaultCPUSet().String(), "assigned": assigned,
		"bubble": podCPUs(s, uid).String(), "reusable": p.cpusToReuse[uid].String(),
	}
}

func parsedCPUs(text string) cpuset.CPUSet {
	cpus, err := cpuset.Parse(text)
	if err != nil {
		panic(err)
	}
	return cpus
}

// kubeletError is a refusal as the kubelet's own kind of error, with the numbers that its text has.
func kubeletError(refusal topomend.Refusal) error {
	switch refusal.Reason {
	case "":
		return nil
	case ErrorSMTAlignment:
		var available, requested, perCore int
		if _, err := fmt.Sscanf(refusal.Error, "SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", &requested, &perCore); err == nil {
			return SMTAlignmentError{RequestedCPUs: requested, CpusPerCore: perCore}
		}
		if _, err := fmt.Sscanf(refusal.Error, "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", &available, &requested, &perCore); err == nil {
			return tooFewPhysicalCPUs(available, requested, perCore)
		}
		return errors.New(refusal.Error)
	}
	return refusalOfPods(refusal)
}

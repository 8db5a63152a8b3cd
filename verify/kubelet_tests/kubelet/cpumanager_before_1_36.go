//go:build !since136

package cpumanager

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
	"k8s.io/utils/cpuset"
)

func podCPUs(state.State, string) cpuset.CPUSet { return cpuset.New() }

func setPodCPUs(state.State, string, cpuset.CPUSet) {
	panic("this kubelet allocates nothing to whole pods")
}

func dropPodCPUs(s state.State, uid string) { setPodCPUs(s, uid, cpuset.New()) }

func refusalOfPods(refusal topomend.Refusal) error { return errors.New(refusal.Error) }

func countPod(*v1.Pod, []string) {}

func countRefusedPod() {}

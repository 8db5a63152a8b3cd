//go:build since136

package cpumanager

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/admission"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/utils/cpuset"
)

func podCPUs(s state.State, uid string) cpuset.CPUSet {
	cpus, _ := s.GetPodCPUSet(uid)
	return cpus
}

func setPodCPUs(s state.State, uid string, cpus cpuset.CPUSet) { s.SetPodCPUSet(uid, cpus) }

func dropPodCPUs(s state.State, uid string) { s.DeletePod(uid) }

func refusalOfPods(refusal topomend.Refusal) error {
	err := errors.New(refusal.Error)
	if refusal.Reason == admission.ErrorReasonEmptyPodSharedPool {
		return admission.NewEmptyPodSharedPoolError(err)
	}
	return err
}

// countPod counts what a pod was allocated as the kubelet does, beside what replay decides.
func countPod(pod *v1.Pod, exclusive []string) {
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		kind := metrics.ResourceManagerSharedPod
		if slices.Contains(exclusive, container.Name) {
			kind = metrics.ResourceManagerExclusivePod
		}
		metrics.ResourceManagerContainerAssignments.WithLabelValues(metrics.ResourceManagerCPU, kind).Inc()
		metrics.ResourceManagerAllocationsTotal.WithLabelValues(metrics.ResourceManagerCPU, metrics.ResourceManagerPod).Inc()
	}
}

func countRefusedPod() {
	metrics.ResourceManagerAllocationErrorsTotal.WithLabelValues(metrics.ResourceManagerCPU, metrics.ResourceManagerPod).Inc()
}

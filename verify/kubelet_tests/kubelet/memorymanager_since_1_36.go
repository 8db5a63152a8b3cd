//go:build since136

package memorymanager

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/admission"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func podBlocks(s state.State, uid string) []state.Block { return s.GetPodMemoryBlocks(uid) }

func setPodBlocks(s state.State, uid string, blocks []state.Block) { s.SetPodMemoryBlocks(uid, blocks) }

func kubeletError(refusal topomend.Refusal) error {
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
		metrics.ResourceManagerContainerAssignments.WithLabelValues(metrics.ResourceManagerMemory, kind).Inc()
		metrics.ResourceManagerAllocationsTotal.WithLabelValues(metrics.ResourceManagerMemory, metrics.ResourceManagerPod).Inc()
	}
}

func countRefusedPod() {
	metrics.ResourceManagerAllocationErrorsTotal.WithLabelValues(metrics.ResourceManagerMemory, metrics.ResourceManagerPod).Inc()
}

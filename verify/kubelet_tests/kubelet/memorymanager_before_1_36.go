//go:build !since136

package memorymanager

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
)

func podBlocks(state.State, string) []state.Block { return nil }

func setPodBlocks(state.State, string, []state.Block) {
	panic("this kubelet allocates nothing to whole pods")
}

func kubeletError(refusal topomend.Refusal) error { return errors.New(refusal.Error) }

func countPod(*v1.Pod, []string) {}

func countRefusedPod() {}

//go:build since137

package main

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

type (
	cadvisorMachine   = cadvisorapi.MachineInfo
	cadvisorNode      = cadvisorapi.Node
	cadvisorHugePages = cadvisorapi.HugePagesInfo
	cadvisorCore      = cadvisorapi.Core
	cadvisorCache     = cadvisorapi.Cache
)

// Pods get the defaults of an API server v1.36, whatever the kubelet: no kubelet asks this gate.
func init() {
	if err := utilfeature.DefaultMutableFeatureGate.Set("PodLevelResourcesFixDefaulting=false"); err != nil {
		panic(err)
	}
}

func (l listedOrder) Allocate(ctx context.Context, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation) error {
	return l.inOrder(pod, container, func() error { return l.ManagerImpl.Allocate(ctx, pod, container, operation) })
}

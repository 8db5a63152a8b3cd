//go:build !since138

package cpumanager

import "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"

func (p *staticPolicy) countState(state.State) {}

//go:build since138

package cpumanager

import (
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
)

// countState sets the gauges that the kubelet computes from the state after each change.
func (p *staticPolicy) countState(s state.State) { p.updateMetricsFromState(klog.Background(), s) }

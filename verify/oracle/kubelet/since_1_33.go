//go:build since133

package main

import (
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
)

// otherStates are the further files without which a kubelet would start, and what it does with each: what it allocated
// to pods (allocation/allocation_manager.go:newStateImpl), what is in force for them
// (kuberuntime/kuberuntime_manager.go), and claims of devices.
func otherStates(folder string) map[string]func() error {
	pods := func(name string) func() error {
		return func() error {
			_, err := made[state.State](state.NewStateCheckpoint, folder, name)
			return err
		}
	}
	return map[string]func() error{
		"allocated_pods_state": pods("allocated_pods_state"),
		"actuated_pods_state":  pods("actuated_pods_state"),
		"dra_manager_state": func() error {
			_, err := made[*dra.Manager](dra.NewManager, nil, folder)
			return err
		},
	}
}

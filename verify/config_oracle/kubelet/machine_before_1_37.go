//go:build !since137

package main

import (
	_ "unsafe"

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

//go:linkname getSystemReservedMemory k8s.io/kubernetes/pkg/kubelet/cm/memorymanager.getSystemReservedMemory
func getSystemReservedMemory(
	machine *cadvisor.MachineInfo, allocatable v1.ResourceList, reserved []kubeletconfig.MemoryReservation,
) (map[int]map[v1.ResourceName]uint64, error)

func (m *Machine) info() *cadvisor.MachineInfo {
	info := &cadvisor.MachineInfo{}
	for id := range m.NUMANodes {
		info.Topology = append(info.Topology, cadvisor.Node{Id: id})
	}
	return info
}

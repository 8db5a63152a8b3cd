package main

import (
	"fmt"

	"k8s.io/utils/cpuset"
)

// machineInfo is the machine as cadvisor would report it to the managers. NumCores counts logical CPUs, as there.
func machineInfo(machine *Machine) (*cadvisorMachine, error) {
	info := &cadvisorMachine{}
	place := map[int]int{}
	for index, node := range machine.NUMANodes {
		place[node.ID] = index
		reported := cadvisorNode{Id: node.ID, Memory: node.Memory, Distances: node.Distances}
		for _, pages := range node.HugePages {
			reported.HugePages = append(reported.HugePages, cadvisorHugePages{PageSize: pages.Size / 1024, NumPages: pages.Count})
		}
		info.Topology = append(info.Topology, reported)
	}
	sockets := map[int]bool{}
	for _, core := range machine.Cores {
		threads, err := cpuset.Parse(core.Threads)
		if err != nil {
			return nil, fmt.Errorf("the threads of a core: %w", err)
		}
		index, found := place[core.NUMANode]
		if !found {
			return nil, fmt.Errorf("core %s stands on NUMA node %d, which is not there", core.Threads, core.NUMANode)
		}
		reported := cadvisorCore{Threads: threads.List(), SocketID: core.Socket}
		if core.L3Cache != nil {
			reported.UncoreCaches = []cadvisorCache{{Id: *core.L3Cache}}
		}
		info.Topology[index].Cores = append(info.Topology[index].Cores, reported)
		info.NumCores += threads.Size()
		sockets[core.Socket] = true
	}
	info.NumSockets = len(sockets)
	return info, nil
}

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
)

const (
	cpuState    = "cpu_manager_state"
	memoryState = "memory_manager_state"
	deviceState = "kubelet_internal_checkpoint"
)

// restore starts each manager on the files that a kubelet finds in its root directory, as its own Start does: each of
// them on its own, so that the answer tells of every file and not of the first one that keeps the kubelet from
// starting. The runtime has no containers.
func restore(given *Case) (*Restored, error) {
	node, err := newNode(given)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	for name, content := range given.Restore.Files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	restored := &Restored{Folder: folder, Refused: map[string]string{}, Files: map[string][]byte{}}
	try := func(name string, start func() error) {
		if why := said(start); why != "" {
			restored.Refused[name] = why
		}
	}
	try(cpuState, func() error { return restoreCPUs(node.cpus, folder) })
	try(memoryState, func() error { return restoreMemory(node.memory, folder) })
	try(deviceState, func() error { return restoreDevices(folder) })
	for name, start := range otherStates(folder) {
		try(name, start)
	}
	for _, name := range []string{cpuState, memoryState} {
		if content, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			restored.Files[name] = content
		}
	}
	return restored, nil
}

// said is why something did not start; empty where it did. A panic ends the kubelet as an error does.
func said(start func() error) (why string) {
	defer func() {
		if cause := recover(); cause != nil {
			why = fmt.Sprint("panic: ", cause)
		}
	}()
	if err := start(); err != nil {
		return err.Error()
	}
	return ""
}

// restoreCPUs is cm/cpumanager/cpu_manager.go:Start without its goroutine, which never ends.
func restoreCPUs(manager cpumanager.Manager, folder string) error {
	policy := get[cpumanager.Policy](manager, "policy")
	state, err := made[cpustate.State](cpustate.NewCheckpointState, folder, cpuState, policy.Name(), containermap.NewContainerMap())
	if err != nil {
		return err
	}
	return failure(call(policy.Start, state))
}

// restoreMemory is cm/memorymanager/memory_manager.go:Start.
func restoreMemory(manager memorymanager.Manager, folder string) error {
	policy := get[memorymanager.Policy](manager, "policy")
	state, err := made[memorystate.State](memorystate.NewCheckpointState, folder, memoryState, policy.Name())
	if err != nil {
		return err
	}
	return failure(call(policy.Start, state))
}

// restoreDevices is what cm/devicemanager/manager.go:readCheckpoint reads. A kubelet goes on without it.
func restoreDevices(folder string) error {
	manager, err := checkpointmanager.NewCheckpointManager(folder)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, deviceState)); err != nil {
		return nil
	}
	return manager.GetCheckpoint(deviceState, checkpoint.New(make([]checkpoint.PodDevicesEntry, 0), make(map[string][]string)))
}

//go:build since135

package main

import (
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	_ "unsafe"
)

// newDeviceManager is devicemanager.NewManagerImpl with the socket's path as an argument: the exported one creates
// a directory under /var/lib/kubelet, which needs root and would be shared by all oracles of the machine.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(logger klog.Logger, socketPath string, topology []cadvisorNode, store topologymanager.Store) (*devicemanager.ManagerImpl, error)

//go:build !since137

package main

import (
	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
)

type (
	cadvisorMachine   = cadvisorapi.MachineInfo
	cadvisorNode      = cadvisorapi.Node
	cadvisorHugePages = cadvisorapi.HugePagesInfo
	cadvisorCore      = cadvisorapi.Core
	cadvisorCache     = cadvisorapi.Cache
)

func (l listedOrder) Allocate(pod *v1.Pod, container *v1.Container) error {
	return l.inOrder(pod, container, func() error { return failure(call(l.ManagerImpl.Allocate, pod, container)) })
}

//go:build !since134

package main

import (
	_ "unsafe"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(name string) (*kubeletconfig.KubeletConfiguration, error)

func loadFile(name string) (*kubeletconfig.KubeletConfiguration, error) { return loadConfigFile(name) }

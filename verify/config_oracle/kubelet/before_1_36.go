//go:build !since136

package main

import (
	_ "unsafe"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

//go:linkname mergeDropIns k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeDropIns(config *kubeletconfig.KubeletConfiguration, folder string) error

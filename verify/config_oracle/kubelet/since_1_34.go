//go:build since134

package main

import (
	"context"
	_ "unsafe"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

func loadFile(name string) (*kubeletconfig.KubeletConfiguration, error) {
	return loadConfigFile(context.Background(), name)
}

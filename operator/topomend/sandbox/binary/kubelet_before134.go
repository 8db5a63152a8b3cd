//go:build before134

package main

import (
	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// newKubeletCommand is for the kubelets that take no context.
func newKubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand() }

//go:build !before134

package main

import (
	"context"

	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// newKubeletCommand gives the kubelet a plain context: it installs its signal handler itself, once a process.
func newKubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }

// Command topomend-sandbox is every program of a Kubernetes cluster in one binary: it dispatches on its first
// argument to the exported commands of Kubernetes and etcd. Nothing here decides anything; the Python side of the
// sandbox says what runs, with which flags.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// commands are built when asked for: building one registers its flags and metrics, and two in one process collide.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	// The kubelet installs its signal handler itself, once a process: it must be given a plain context.
	"kubelet": func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: topomend-sandbox etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kubectl|cri|key [flags]")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "cri":
		os.Exit(serveFakeRuntimes(os.Args[1:]))
	case "key":
		os.Exit(writeKey(os.Args[1:]))
	default:
		command, known := commands[name]
		if !known {
			fmt.Fprintf(os.Stderr, "topomend-sandbox: no program is called %q\n", name)
			os.Exit(2)
		}
		os.Exit(cli.Run(command()))
	}
}

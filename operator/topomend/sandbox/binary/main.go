// Command topomend-sandbox is every program of a Kubernetes cluster in one binary: it dispatches on its first
// argument to the exported commands of Kubernetes and etcd. Nothing here decides anything; the Python side of the
// sandbox says what runs, with which flags.
//
// For a release other than that of go.mod, only this file and one of kubelet_*.go are built: the other programs, which
// are in tools.go, cri.go and key.go, serve every release.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs are those of Kubernetes. They are built when asked for: building one registers its flags and metrics, and
// two in one process collide.
var programs = map[string]func(arguments []string) int{
	"kube-apiserver":          running(apiserver.NewAPIServerCommand),
	"kube-controller-manager": running(controllermanager.NewControllerManagerCommand),
	"kubectl":                 running(kubectl.NewDefaultKubectlCommand),
	"kube-scheduler":          running(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 running(newKubeletCommand),
}

func running(build func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(build()) }
}

func main() {
	if len(os.Args) < 2 {
		names := strings.Join(slices.Sorted(maps.Keys(programs)), "|")
		fmt.Fprintf(os.Stderr, "usage: topomend-sandbox %s [flags]\n", names)
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "topomend-sandbox: no program is called %q\n", name)
		os.Exit(2)
	}
	os.Exit(run(os.Args[1:]))
}

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cri-client/pkg/fake"
)

// serveFakeRuntime serves the Container Runtime Interface on the unix socket named by its one argument. Containers
// "run" at once and do nothing: the kubelet's admission, which the sandbox is for, never looks inside them.
func serveFakeRuntime(arguments []string) int {
	if len(arguments) != 1 {
		fmt.Fprintln(os.Stderr, "usage: topomend-sandbox cri SOCKET")
		return 2
	}
	endpoint := "unix://" + arguments[0]
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		fmt.Fprintf(os.Stderr, "topomend-sandbox: cri: cannot serve on %s: %v\n", endpoint, err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	runtime.Stop()
	return 0
}

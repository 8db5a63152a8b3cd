package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cri-client/pkg/fake"
)

// serveFakeRuntimes serves the Container Runtime Interface on each unix socket that is named, a runtime of its own on
// each. Containers "run" at once and do nothing: the kubelet's admission, which the sandbox is for, never looks
// inside them.
func serveFakeRuntimes(sockets []string) int {
	if len(sockets) == 0 {
		fmt.Fprintln(os.Stderr, "usage: topomend-sandbox cri SOCKET...")
		return 2
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	for _, socket := range sockets {
		runtime := fake.NewFakeRemoteRuntime()
		endpoint := "unix://" + socket
		if err := runtime.Start(endpoint); err != nil {
			fmt.Fprintf(os.Stderr, "topomend-sandbox: cri: cannot serve on %s: %v\n", endpoint, err)
			return 1
		}
		defer runtime.Stop()
	}
	<-stop
	return 0
}

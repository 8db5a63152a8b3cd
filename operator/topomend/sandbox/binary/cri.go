package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
)

// fakeRuntime is a container runtime whose containers are only said to run: the kubelet's admission, which the sandbox
// is for, never looks inside them. Three commands are obeyed, so that init containers and jobs can come to an end:
// ["true"], ["false"] and ["sleep", "SECONDS"].
type fakeRuntime struct {
	*fake.RemoteRuntime

	mutex sync.Mutex
	ends  map[string]ending
}

// ending is how a container ends by itself: how long after its start, and with which exit code.
type ending struct {
	after time.Duration
	code  int32
}

// serveFakeRuntimes serves the Container Runtime Interface on each unix socket that is named, a runtime of its own on
// each.
func serveFakeRuntimes(sockets []string) int {
	if len(sockets) == 0 {
		fmt.Fprintln(os.Stderr, "usage: topomend-sandbox cri SOCKET...")
		return 2
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	for _, socket := range sockets {
		listener, err := net.Listen("unix", socket)
		if err != nil {
			fmt.Fprintf(os.Stderr, "topomend-sandbox: cri: cannot serve on %s: %v\n", socket, err)
			return 1
		}
		server := newFakeRuntime().server()
		go func() {
			if err := server.Serve(listener); err != nil {
				fmt.Fprintf(os.Stderr, "topomend-sandbox: cri: %s: %v\n", socket, err)
			}
		}()
		defer server.Stop()
	}
	<-stop
	return 0
}

func newFakeRuntime() *fakeRuntime {
	remote := fake.NewFakeRemoteRuntime()
	remote.RuntimeService.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}
	// The kubelet takes no image that is there already and has no size.
	remote.ImageService.SetFakeImageSize(1)
	return &fakeRuntime{RemoteRuntime: remote, ends: map[string]ending{}}
}

func (r *fakeRuntime) server() *grpc.Server {
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	return server
}

// CreateContainer remembers how the container is to end.
func (r *fakeRuntime) CreateContainer(ctx context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	response, err := r.RemoteRuntime.CreateContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	r.setLogPath(response.ContainerId, filepath.Join(request.GetSandboxConfig().GetLogDirectory(), request.GetConfig().GetLogPath()))
	command := append(append([]string{}, request.GetConfig().GetCommand()...), request.GetConfig().GetArgs()...)
	if end, ends := endOf(command); ends {
		r.mutex.Lock()
		r.ends[response.ContainerId] = end
		r.mutex.Unlock()
	}
	return response, nil
}

// setLogPath has the container's status tell its log, although nothing is written there: when the container is removed,
// the kubelet removes the files that match this path and "*", so an empty one would stand for any file.
func (r *fakeRuntime) setLogPath(id, path string) {
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	if container, exists := r.RuntimeService.Containers[id]; exists {
		container.LogPath = path
	}
}

// StartContainer has the container end in its time.
func (r *fakeRuntime) StartContainer(ctx context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	response, err := r.RemoteRuntime.StartContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	r.mutex.Lock()
	end, ends := r.ends[request.ContainerId]
	delete(r.ends, request.ContainerId)
	r.mutex.Unlock()
	if ends {
		time.AfterFunc(end.after, func() { r.exit(request.ContainerId, end.code) })
	}
	r.forgetCalls()
	return response, nil
}

// exit lets a container that still runs be seen as ended.
func (r *fakeRuntime) exit(id string, code int32) {
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	container, exists := r.RuntimeService.Containers[id]
	if !exists || container.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	container.State = runtimeapi.ContainerState_CONTAINER_EXITED
	container.FinishedAt = time.Now().UnixNano()
	container.ExitCode = code
}

// forgetCalls drops the list of calls that the fake service keeps for unit tests and never shortens.
func (r *fakeRuntime) forgetCalls() {
	r.RuntimeService.Lock()
	r.RuntimeService.Called = nil
	r.RuntimeService.Unlock()
}

func endOf(command []string) (ending, bool) {
	switch {
	case len(command) == 1 && command[0] == "true":
		return ending{}, true
	case len(command) == 1 && command[0] == "false":
		return ending{code: 1}, true
	case len(command) == 2 && command[0] == "sleep":
		seconds, err := strconv.ParseFloat(command[1], 64)
		return ending{after: time.Duration(seconds * float64(time.Second))}, err == nil && seconds >= 0
	}
	return ending{}, false
}

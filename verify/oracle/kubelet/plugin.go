package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// plugin is a device plugin within this process. Asked which devices it prefers it takes those that must be included
// and then the available ones in the order in which the case lists them, so that the choice does not hang on the order of Go's maps.
type plugin struct {
	resource string
	rank     map[string]int
}

func connectPlugins(manager *devicemanager.ManagerImpl, devices []Device) error {
	var resources []string
	announced := map[string][]*pluginapi.Device{}
	for _, device := range devices {
		if _, known := announced[device.Resource]; !known {
			resources = append(resources, device.Resource)
		}
		announced[device.Resource] = append(announced[device.Resource], announce(&device))
	}
	for _, resource := range resources {
		ranked := &plugin{resource: resource, rank: map[string]int{}}
		for index, device := range announced[resource] {
			ranked.rank[device.ID] = index
		}
		if err := failure(call(manager.PluginConnected, resource, ranked)); err != nil {
			return err
		}
		call(manager.PluginListAndWatchReceiver, resource, &pluginapi.ListAndWatchResponse{Devices: announced[resource]})
	}
	return nil
}

func announce(device *Device) *pluginapi.Device {
	announced := &pluginapi.Device{ID: device.ID, Health: pluginapi.Healthy}
	if device.Unhealthy {
		announced.Health = pluginapi.Unhealthy
	}
	if device.NUMANodes != nil {
		announced.Topology = &pluginapi.TopologyInfo{}
		for _, node := range device.NUMANodes {
			announced.Topology.Nodes = append(announced.Topology.Nodes, &pluginapi.NUMANode{ID: node})
		}
	}
	return announced
}

func (p *plugin) API() pluginapi.DevicePluginClient { return p }
func (p *plugin) Resource() string                  { return p.resource }
func (p *plugin) SocketPath() string                { return "" }

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(context.Context, *pluginapi.Empty, ...grpc.CallOption) (pluginapi.DevicePlugin_ListAndWatchClient, error) {
	return nil, fmt.Errorf("the oracle announces devices by itself")
}

func (p *plugin) GetPreferredAllocation(_ context.Context, request *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.ContainerRequests {
		preferred := slices.Clone(container.MustIncludeDeviceIDs)
		rest := slices.Clone(container.AvailableDeviceIDs)
		slices.SortFunc(rest, func(a, b string) int { return p.rank[a] - p.rank[b] })
		for _, id := range rest {
			if len(preferred) < int(container.AllocationSize) && !slices.Contains(preferred, id) {
				preferred = append(preferred, id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: preferred})
	}
	return response, nil
}

func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{}}}, nil
}

func (p *plugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest, ...grpc.CallOption) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

// listedOrder is the device manager with one choice of Go's maps taken away: where earlier init containers leave more
// devices than the next container needs, the kubelet takes any of them (manager.go:devicesToAllocate). Here it is left
// with those that the case lists first, and gets the others back afterwards.
type listedOrder struct {
	*devicemanager.ManagerImpl
	rank map[string]int
}

func (l listedOrder) inOrder(pod *v1.Pod, container *v1.Container, allocate func() error) error {
	reusable := get[devicemanager.PodReusableDevices](l.ManagerImpl, "devicesToReuse")[string(pod.UID)]
	withheld := map[string][]string{}
	for resource, ids := range reusable {
		limit := container.Resources.Limits[v1.ResourceName(resource)]
		needed := int(limit.Value())
		if needed == 0 || ids.Len() <= needed {
			continue
		}
		listed := slices.SortedFunc(maps.Keys(ids), func(a, b string) int { return l.rank[resource+"/"+a] - l.rank[resource+"/"+b] })
		withheld[resource] = listed[needed:]
		ids.Delete(listed[needed:]...)
	}
	err := allocate()
	for resource, ids := range withheld {
		reusable[resource].Insert(ids...)
	}
	return err
}

// noCheckpoints stands in for the device manager's file: cases do not outlive the process.
type noCheckpoints struct{}

func (noCheckpoints) CreateCheckpoint(string, checkpointmanager.Checkpoint) error { return nil }
func (noCheckpoints) GetCheckpoint(string, checkpointmanager.Checkpoint) error {
	return errors.ErrCheckpointNotFound
}
func (noCheckpoints) RemoveCheckpoint(string) error      { return nil }
func (noCheckpoints) ListCheckpoints() ([]string, error) { return nil, nil }

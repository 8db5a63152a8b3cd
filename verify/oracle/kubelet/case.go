package main

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

// Case is a node and what happens to it, one merge of hints, or a kubelet that starts on files of an earlier one. Names
// follow the kubelet's configuration. With Node, which is the API object, a pod that the managers admit meets the
// kubelet's fit check next.
type Case struct {
	Name           string           `json:"name,omitempty"`
	Shows          string           `json:"shows,omitempty"`
	Machine        Machine          `json:"machine"`
	Kubelet        Settings         `json:"kubelet"`
	Devices        []Device         `json:"devices"`
	Steps          []Step           `json:"steps"`
	Merge          *Merge           `json:"merge,omitempty"`
	Node           *json.RawMessage `json:"node,omitempty"`
	Restore        *Restore         `json:"restore,omitempty"`
	TimeoutSeconds float64          `json:"timeoutSeconds,omitempty"`
}

// Machine is what cadvisor reports. Sets of CPUs are cpulists.
type Machine struct {
	NUMANodes []NUMANode `json:"numaNodes"`
	Cores     []Core     `json:"cores"`
}

type NUMANode struct {
	ID        int         `json:"id"`
	Memory    uint64      `json:"memory"`
	HugePages []HugePages `json:"hugepages,omitempty"`
	Distances []uint64    `json:"distances,omitempty"`
}

// HugePages of one size: Size in bytes.
type HugePages struct {
	Size  uint64 `json:"size"`
	Count uint64 `json:"count"`
}

type Core struct {
	Threads  string `json:"threads"`
	Socket   int    `json:"socket"`
	NUMANode int    `json:"numaNode"`
	L3Cache  *int   `json:"l3Cache"`
}

// Settings of the kubelet. KubeReserved holds the CPU that is reserved where ReservedSystemCPUs is empty.
// The reservation of memory follows from ReservedMemory: the kubelet refuses to start where they differ.
// Version is the one whose rules are meant; it is for who asks to see to it that this oracle is of that version.
type Settings struct {
	Version                      string              `json:"version,omitempty"`
	TopologyManagerPolicy        string              `json:"topologyManagerPolicy"`
	TopologyManagerScope         string              `json:"topologyManagerScope"`
	TopologyManagerPolicyOptions map[string]string   `json:"topologyManagerPolicyOptions,omitempty"`
	CPUManagerPolicy             string              `json:"cpuManagerPolicy"`
	CPUManagerPolicyOptions      map[string]string   `json:"cpuManagerPolicyOptions,omitempty"`
	MemoryManagerPolicy          string              `json:"memoryManagerPolicy"`
	ReservedSystemCPUs           string              `json:"reservedSystemCPUs,omitempty"`
	KubeReserved                 v1.ResourceList     `json:"kubeReserved,omitempty"`
	ReservedMemory               []MemoryReservation `json:"reservedMemory,omitempty"`
	FeatureGates                 map[string]bool     `json:"featureGates,omitempty"`
}

type MemoryReservation struct {
	NUMANode int32           `json:"numaNode"`
	Limits   v1.ResourceList `json:"limits"`
}

// Device as its plugin announces it. NUMANodes nil is a device without topology.
type Device struct {
	Resource  string  `json:"resource"`
	ID        string  `json:"id"`
	NUMANodes []int64 `json:"numaNodes"`
	Unhealthy bool    `json:"unhealthy,omitempty"`
}

// Step is one thing that happens: a pod is admitted, its containers start (in the order given), it ends, or the
// kubelet restarts, after which the case admits the pods again. An admitted pod stays as admission left it until a
// step says otherwise.
//
// After a restart without Found the plugins are back and the kubelet's sources of pods are ready before the next step.
// With Found, which is what the kubelet finds in its runtime, the sources become ready at a step Ready, and the plugins
// of the resources Away come back at a step Connect.
type Step struct {
	Admit   *json.RawMessage  `json:"admit,omitempty"`
	Start   *Start            `json:"start,omitempty"`
	End     *PodName          `json:"end,omitempty"`
	Restart bool              `json:"restart,omitempty"`
	Found   *[]FoundContainer `json:"found,omitempty"`
	Away    []string          `json:"away,omitempty"`
	Ready   bool              `json:"ready,omitempty"`
	Connect []string          `json:"connect,omitempty"`
}

// FoundContainer is one instance of a container of a pod, which runs or has ended.
type FoundContainer struct {
	PodUID  string `json:"podUID"`
	Name    string `json:"name"`
	Running bool   `json:"running,omitempty"`
}

type PodName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type Start struct {
	PodName
	Containers []string `json:"containers"`
}

// Restore is what a kubelet finds in its root directory: files by name, their content in base64.
type Restore struct {
	Files map[string][]byte `json:"files"`
}

// Restored is what a kubelet says of each file with which it would not start, and what the files of the CPU and Memory
// Manager hold afterwards. Folder is the root directory, which the kubelet's sentences name.
type Restored struct {
	Folder  string            `json:"folder"`
	Refused map[string]string `json:"refused"`
	Files   map[string][]byte `json:"files"`
}

// Answer to a case: the kubelet refuses to start, its code panics or takes too long, or one answer a step.
type Answer struct {
	Refused  string       `json:"refused,omitempty"`
	Panic    string       `json:"panic,omitempty"`
	Timeout  bool         `json:"timeout,omitempty"`
	Merged   *Merged      `json:"merged,omitempty"`
	Restored *Restored    `json:"restored,omitempty"`
	Steps    []StepAnswer `json:"steps,omitempty"`
}

// StepAnswer carries the pod's status fields of an admission, what each of its containers was given (also by a
// refused admission, up to the container that failed), and the node's books once pods that are gone are purged.
// Refused is what a kubelet says that cannot restart on what it finds of before; no step follows it. Reasons are all that
// its fit check found, of which it tells the first.
type StepAnswer struct {
	Admitted   bool        `json:"admitted"`
	Reason     string      `json:"reason"`
	Message    string      `json:"message"`
	Containers []Container `json:"containers"`
	State      *State      `json:"state"`
	Refused    string      `json:"refused,omitempty"`
	Reasons    []string    `json:"reasons,omitempty"`
}

type Container struct {
	Name      string              `json:"name"`
	Affinity  []int               `json:"affinity"`
	Preferred bool                `json:"preferred"`
	CPUs      string              `json:"cpus"`
	Memory    []Block             `json:"memory"`
	Devices   map[string][]string `json:"devices"`
}

type Block struct {
	Type      string `json:"type"`
	NUMANodes []int  `json:"numaNodes"`
	Size      uint64 `json:"size"`
}

// State of the node: the shared pool, the Memory Manager's book, the ids of the devices that are held, and what each
// pod holds, also those that are gone and that a kubelet that is not ready yet has not purged.
type State struct {
	DefaultCPUs string                 `json:"defaultCPUs"`
	Memory      []NUMANodeMemory       `json:"memory"`
	Devices     map[string][]string    `json:"devices"`
	Pods        map[string][]Container `json:"pods"`
}

type NUMANodeMemory struct {
	NUMANode    int               `json:"numaNode"`
	Assignments int               `json:"assignments"`
	Cells       []int             `json:"cells"`
	Reserved    map[string]uint64 `json:"reserved"`
	Free        map[string]uint64 `json:"free"`
}

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

// Merge is one merge of fabricated hints. Providers holds, for each provider, the hints of each of its resources:
// null is no preference, an empty list is impossible.
type Merge struct {
	NUMANodes []NUMANode          `json:"numaNodes"`
	Policy    string              `json:"policy"`
	Options   map[string]string   `json:"options,omitempty"`
	Providers []map[string][]Hint `json:"providers"`
}

// Hint is a mask of NUMA nodes (null is none) and whether it is preferred.
type Hint struct {
	Affinity  []int `json:"affinity"`
	Preferred bool  `json:"preferred"`
}

type Merged struct {
	Hint
	Admit bool `json:"admit"`
}

func merge(given *Merge) (*Merged, error) {
	policy, err := newPolicy(given.Policy, given.NUMANodes, given.Options)
	if err != nil {
		return nil, err
	}
	var providers []map[string][]topologymanager.TopologyHint
	for _, resources := range given.Providers {
		var hints map[string][]topologymanager.TopologyHint
		if resources != nil {
			hints = map[string][]topologymanager.TopologyHint{}
		}
		for resource, list := range resources {
			converted, err := topologyHints(list)
			if err != nil {
				return nil, err
			}
			hints[resource] = converted
		}
		providers = append(providers, hints)
	}
	results := call(policy.Merge, providers)
	best := results[0].Interface().(topologymanager.TopologyHint)
	return &Merged{Hint: Hint{maskIDs(best.NUMANodeAffinity), best.Preferred}, Admit: results[1].Bool()}, nil
}

func topologyHints(list []Hint) ([]topologymanager.TopologyHint, error) {
	if list == nil {
		return nil, nil
	}
	converted := []topologymanager.TopologyHint{}
	for _, hint := range list {
		one := topologymanager.TopologyHint{Preferred: hint.Preferred}
		if hint.Affinity != nil {
			mask, err := bitmask.NewBitMask(hint.Affinity...)
			if err != nil {
				return nil, err
			}
			one.NUMANodeAffinity = mask
		}
		converted = append(converted, one)
	}
	return converted, nil
}

func newPolicy(name string, nodes []NUMANode, options map[string]string) (topologymanager.Policy, error) {
	parsed, err := made[topologymanager.PolicyOptions](topologymanager.NewPolicyOptions, options)
	if err != nil {
		return nil, err
	}
	var topology []cadvisorNode
	for _, node := range nodes {
		topology = append(topology, cadvisorNode{Id: node.ID, Distances: node.Distances})
	}
	info, err := topologymanager.NewNUMAInfo(topology, parsed)
	if err != nil {
		return nil, err
	}
	switch name {
	case topologymanager.PolicyNone:
		return topologymanager.NewNonePolicy(), nil
	case topologymanager.PolicyBestEffort:
		return topologymanager.NewBestEffortPolicy(info, parsed), nil
	case topologymanager.PolicyRestricted:
		return topologymanager.NewRestrictedPolicy(info, parsed), nil
	case topologymanager.PolicySingleNumaNode:
		return topologymanager.NewSingleNumaNodePolicy(info, parsed), nil
	}
	return nil, fmt.Errorf("unknown policy: %q", name)
}

func maskIDs(mask bitmask.BitMask) []int {
	if mask == nil {
		return nil
	}
	return mask.GetBits()
}

// bench times one merge of the real policy: every mask of the machine for each resource, those of one NUMA node
// preferred, as an empty machine offers them. What takes longer than the time-out is reported as such.
func bench(arguments []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	count := flags.Int("numa", 4, "NUMA nodes")
	resources := flags.Int("resources", 3, "aligned resources")
	policyName := flags.String("policy", topologymanager.PolicyBestEffort, "topology manager policy")
	timeout := flags.Duration("timeout", 30*time.Second, "give up after this time")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	var nodes []NUMANode
	var ids []int
	for id := range *count {
		nodes, ids = append(nodes, NUMANode{ID: id}), append(ids, id)
	}
	policy, err := newPolicy(*policyName, nodes, map[string]string{"max-allowable-numa-nodes": fmt.Sprint(max(8, *count))})
	if err != nil {
		return err
	}
	finished := make(chan float64, 1)
	go func() {
		var hints []topologymanager.TopologyHint
		begin := time.Now()
		bitmask.IterateBitMasks(ids, func(mask bitmask.BitMask) {
			hints = append(hints, topologymanager.TopologyHint{NUMANodeAffinity: mask, Preferred: mask.Count() == 1})
		})
		provider := map[string][]topologymanager.TopologyHint{}
		for index := range *resources {
			provider[fmt.Sprintf("example.com/resource-%d", index)] = hints
		}
		call(policy.Merge, []map[string][]topologymanager.TopologyHint{provider})
		finished <- time.Since(begin).Seconds()
	}()
	answer := map[string]any{"numaNodes": *count, "resources": *resources, "policy": *policyName}
	select {
	case seconds := <-finished:
		answer["seconds"] = seconds
	case <-time.After(*timeout):
		answer["timeout"] = timeout.Seconds()
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

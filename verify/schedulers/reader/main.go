// Prints a NodeResourceTopology as the scheduler plugin NodeResourceTopologyMatch reads it, by its own functions.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2/helper"
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2/helper/numanode"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology/nodeconfig"
)

// A zone as pluginhelpers.go:createNUMANodeList takes it, which reads what is available. KAI also reads what is
// allocatable.
type zone struct {
	NUMANode    int              `json:"numaNode"`
	Costs       map[int]int64    `json:"costs"`
	Allocatable map[string]int64 `json:"allocatable"`
	Available   map[string]int64 `json:"available"`
}

type answer struct {
	Policy       string `json:"policy"`
	Scope        string `json:"scope"`
	MaxNUMANodes int    `json:"maxNUMANodes"`
	Zones        []zone `json:"zones"`
}

func main() {
	read, err := answerOf(json.NewDecoder(os.Stdin))
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(read)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerOf(decoder *json.Decoder) (*answer, error) {
	decoder.DisallowUnknownFields()
	var object v1alpha2.NodeResourceTopology
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	manager := nodeconfig.TopologyManagerFromNodeResourceTopology(logr.Discard(), &object)
	found := answer{Policy: manager.Policy, Scope: manager.Scope, MaxNUMANodes: manager.MaxNUMANodes}
	for _, each := range object.Zones {
		if each.Type != helper.ZoneTypeNUMANode {
			continue
		}
		made, err := zoneOf(each)
		if err != nil {
			return nil, err
		}
		found.Zones = append(found.Zones, made)
	}
	return &found, nil
}

func zoneOf(given v1alpha2.Zone) (zone, error) {
	made := zone{Costs: map[int]int64{}, Allocatable: map[string]int64{}, Available: map[string]int64{}}
	var err error
	if made.NUMANode, err = numanode.NameToID(given.Name); err != nil {
		return made, err
	}
	for _, cost := range given.Costs {
		other, err := numanode.NameToID(cost.Name)
		if err != nil {
			return made, err
		}
		made.Costs[other] = cost.Value
	}
	for _, resource := range given.Resources {
		made.Allocatable[resource.Name] = resource.Allocatable.Value()
		made.Available[resource.Name] = resource.Available.Value()
	}
	return made, nil
}

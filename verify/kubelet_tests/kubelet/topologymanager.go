package topologymanager

import (
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
)

// ReplayHint is a hint as replay reads it.
func ReplayHint(hint TopologyHint) topomend.Hint {
	if hint.NUMANodeAffinity == nil {
		return topomend.Hint{Preferred: hint.Preferred}
	}
	return topomend.Hint{Nodes: append([]int{}, hint.NUMANodeAffinity.GetBits()...), Preferred: hint.Preferred}
}

// KubeletHint is the hint that replay answered.
func KubeletHint(hint topomend.Hint) TopologyHint {
	if hint.Nodes == nil {
		return TopologyHint{Preferred: hint.Preferred}
	}
	mask, err := bitmask.NewBitMask(hint.Nodes...)
	if err != nil {
		panic(err)
	}
	return scored(TopologyHint{NUMANodeAffinity: mask, Preferred: hint.Preferred}, hint.Score)
}

// KubeletHints are the hints of each resource that replay answered; a nil list stays nil.
func KubeletHints(answered map[string][]topomend.Hint) map[string][]TopologyHint {
	if answered == nil {
		return nil
	}
	hints := map[string][]TopologyHint{}
	for resource, list := range answered {
		hints[resource] = nil
		if list != nil {
			hints[resource] = []TopologyHint{}
		}
		for _, hint := range list {
			hints[resource] = append(hints[resource], KubeletHint(hint))
		}
	}
	return hints
}

func replayMerge(function, policy string, info *NUMAInfo, options PolicyOptions, providersHints []map[string][]TopologyHint) (TopologyHint, bool) {
	providers := []map[string][]topomend.Hint{}
	for _, hints := range providersHints {
		asked := map[string][]topomend.Hint{}
		for resource, list := range hints {
			asked[resource] = nil
			if list != nil {
				asked[resource] = []topomend.Hint{}
			}
			for _, hint := range list {
				asked[resource] = append(asked[resource], ReplayHint(hint))
			}
		}
		providers = append(providers, asked)
	}
	var answer struct {
		Hint     topomend.Hint
		Admitted bool
	}
	topomend.Ask(function, map[string]any{
		"policy": policy, "info": info, "options": options, "providers": providers,
	}, &answer)
	return KubeletHint(answer.Hint), answer.Admitted
}

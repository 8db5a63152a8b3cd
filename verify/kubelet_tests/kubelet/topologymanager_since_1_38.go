//go:build since138

package topologymanager

func scored(hint TopologyHint, score int64) TopologyHint {
	hint.Score = score
	return hint
}

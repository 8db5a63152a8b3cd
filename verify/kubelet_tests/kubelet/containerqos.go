package qos

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topomend"
)

func replayGuaranteed(function string, container *v1.Container) bool {
	var answer bool
	topomend.Ask(function, map[string]any{"container": container}, &answer)
	return answer
}

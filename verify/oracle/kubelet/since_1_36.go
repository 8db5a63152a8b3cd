//go:build since136

package main

import (
	"reflect"

	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

func init() {
	commonArguments[reflect.TypeFor[lifecycle.Operation]()] = reflect.ValueOf(lifecycle.AddOperation)
}

// adding says that the pod is new on the node.
func adding(attributes *lifecycle.PodAdmitAttributes) *lifecycle.PodAdmitAttributes {
	attributes.Operation = lifecycle.AddOperation
	return attributes
}

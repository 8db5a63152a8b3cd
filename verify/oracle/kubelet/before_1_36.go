//go:build !since136

package main

import "k8s.io/kubernetes/pkg/kubelet/lifecycle"

// adding changes nothing: every pod that these versions are asked to admit is new on the node.
func adding(attributes *lifecycle.PodAdmitAttributes) *lifecycle.PodAdmitAttributes {
	return attributes
}

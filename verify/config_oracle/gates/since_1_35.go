//go:build since135

package main

import utilfeature "k8s.io/apiserver/pkg/util/feature"

func dependencies() map[string][]string {
	found := map[string][]string{}
	for name, needed := range utilfeature.DefaultMutableFeatureGate.Dependencies() {
		for _, one := range needed {
			found[string(name)] = append(found[string(name)], string(one))
		}
	}
	return found
}

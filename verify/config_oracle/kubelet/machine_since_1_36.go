//go:build since136

package main

import (
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

func checkCurves(config *kubeletconfig.KubeletConfiguration) error {
	_, err := cliflag.TLSCurvePreferences(config.TLSCurvePreferences)
	return err
}

//go:build !since136

package main

import kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"

func checkCurves(*kubeletconfig.KubeletConfiguration) error { return nil }

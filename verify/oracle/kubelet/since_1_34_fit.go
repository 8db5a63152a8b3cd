//go:build since134 && !since137

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

func (r *reasons) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, given []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	return r.note(given)
}

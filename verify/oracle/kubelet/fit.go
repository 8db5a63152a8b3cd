package main

import (
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/types"
)

// fit asks the kubelet's own fit check about a pod that the managers have admitted, as a kubelet does next
// (kubelet.go:NewMainKubelet, the order of its admit handlers). Reasons are all that the check found, in its order.
//
// A critical pod that lacks resources alone is refused here: whom the kubelet would evict for it is left out.
func (n *Node) fit(document json.RawMessage, asked *lifecycle.PodAdmitAttributes) (lifecycle.PodAdmitResult, []string) {
	object := &v1.Node{}
	if err := json.Unmarshal(document, object); err != nil {
		panic(fmt.Sprintf("not a node: %v", err))
	}
	found := &reasons{pod: asked.Pod}
	handler := call(lifecycle.NewPredicateAdmitHandler, returning(lifecycle.NewPredicateAdmitHandler, object), found, n.devices.UpdatePluginResources)[0]
	result := call(handler.Interface().(lifecycle.PodAdmitHandler).Admit, asked)[0].Interface().(lifecycle.PodAdmitResult)
	return result, found.texts
}

// returning is a function of the type that maker takes first, which returns a copy of the node and no error. From
// version to version it takes a context and whether a cache will do.
func returning(maker any, object *v1.Node) any {
	getter := reflect.TypeOf(maker).In(0)
	return reflect.MakeFunc(getter, func([]reflect.Value) []reflect.Value {
		return []reflect.Value{reflect.ValueOf(object.DeepCopy()), reflect.Zero(getter.Out(1))}
	}).Interface()
}

// reasons notes what the check found and makes room for nobody. For a critical pod it answers as the kubelet's handler
// does, which needs half a kubelet to be built: without the resources, if anything else is wrong
// (preemption/preemption.go:HandleAdmissionFailure).
type reasons struct {
	pod   *v1.Pod
	texts []string
}

func (r *reasons) note(given []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	var others []lifecycle.PredicateFailureReason
	for _, reason := range given {
		r.texts = append(r.texts, reason.(error).Error())
		if _, short := reason.(*lifecycle.InsufficientResourceError); !short {
			others = append(others, reason)
		}
	}
	if len(others) > 0 && types.IsCriticalPod(r.pod) {
		return others, nil
	}
	return given, nil
}

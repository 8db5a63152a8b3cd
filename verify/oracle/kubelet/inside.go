package main

import (
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// set writes an unexported field of a manager, in place of the manager's Start: that one opens sockets and files
// and starts goroutines that never end, once for each of many thousand cases. Panics where the field is no more or
// has another type.
func set[T any](manager any, name string, value T) {
	field := reflect.ValueOf(manager).Elem().FieldByName(name)
	if field.Type() != reflect.TypeFor[T]() {
		panic("the field " + name + " is a " + field.Type().String())
	}
	*(*T)(unsafe.Pointer(field.UnsafeAddr())) = value
}

// get reads an unexported field of a manager, as set writes it.
func get[T any](manager any, name string) T {
	field := reflect.ValueOf(manager).Elem().FieldByName(name)
	return *(*T)(unsafe.Pointer(field.UnsafeAddr()))
}

// hand copies an unexported field from one manager to another of the same type.
func hand(to, from any, name string) {
	target, source := reflect.ValueOf(to).Elem().FieldByName(name), reflect.ValueOf(from).Elem().FieldByName(name)
	writable := func(field reflect.Value) reflect.Value {
		return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
	}
	writable(target).Set(writable(source))
}

// allocatedDevices are the ids that the device manager counts as taken, by resource.
func allocatedDevices(manager *devicemanager.ManagerImpl) map[string]sets.Set[string] {
	return get[map[string]sets.Set[string]](manager, "allocatedDevices")
}

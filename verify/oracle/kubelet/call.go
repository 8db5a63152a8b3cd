package main

import (
	"context"
	"fmt"
	"reflect"

	"github.com/go-logr/logr"
)

// call calls a function of the kubelet's. From version to version many of them gained a logger, a context or the
// operation (a pod is added) among their parameters: what a function asks for of these is filled in, the others are
// given in order. A nil stands for the zero value. Panics where what is given does not fit.
func call(function any, given ...any) []reflect.Value {
	callee := reflect.ValueOf(function)
	arguments := make([]reflect.Value, callee.Type().NumIn())
	for index := range arguments {
		wanted := callee.Type().In(index)
		if common, found := commonArguments[wanted]; found {
			arguments[index] = common
			continue
		}
		if given[0] == nil {
			arguments[index] = reflect.Zero(wanted)
		} else {
			arguments[index] = reflect.ValueOf(given[0])
		}
		given = given[1:]
	}
	if len(given) > 0 {
		panic(fmt.Sprintf("%s takes %d arguments less than are given", callee.Type(), len(given)))
	}
	return callee.Call(arguments)
}

var commonArguments = map[reflect.Type]reflect.Value{
	reflect.TypeFor[logr.Logger]():     reflect.ValueOf(logr.Discard()),
	reflect.TypeFor[context.Context](): reflect.ValueOf(context.Background()),
}

// made calls a function that makes something or says why not.
func made[T any](function any, given ...any) (T, error) {
	results := call(function, given...)
	thing, _ := results[0].Interface().(T)
	return thing, failure(results)
}

// failure is the error that a function of the kubelet's returned last.
func failure(results []reflect.Value) error {
	if len(results) == 0 {
		return nil
	}
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

package main

import (
	"reflect"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// Facts are what the kubelet knows of its configuration.
type Facts struct {
	// Types are those of v1beta1.
	Types Schema `json:"types"`
	// Internal are those of the kubelet's own type, into which kubelets before 1.32 merge drop-ins.
	Internal Schema `json:"internal"`
	// Flags are the types of the flags that override the file, by name.
	Flags map[string]string `json:"flags"`
}

func facts() Facts {
	internal := Schema{}
	internal.named(reflect.TypeFor[kubeletconfig.KubeletConfiguration]())
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		panic(err)
	}
	flags := map[string]string{}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.AddKubeletConfigFlags(set, config)
	set.VisitAll(func(flag *pflag.Flag) { flags[flag.Name] = flag.Value.Type() })
	return Facts{schemaOfConfiguration(), internal, flags}
}

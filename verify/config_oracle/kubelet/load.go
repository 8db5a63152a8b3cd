package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	_ "unsafe"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	defaults "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	kubeletvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"

	_ "k8s.io/kubernetes/cmd/kubelet/app"
)

//go:linkname kubeletConfigFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func kubeletConfigFlagPrecedence(config *kubeletconfig.KubeletConfiguration, arguments []string) error

// What one case changes in the process, as it was at the start.
var (
	pristineGates    = utilfeature.DefaultMutableFeatureGate.DeepCopy()
	pristineEviction = maps.Clone(eviction.DefaultEvictionHard)
	pristineEnforced = slices.Clone(defaults.DefaultNodeAllocatableEnforcement)
)

// reset gives each case a process as new.
func reset() {
	utilfeature.DefaultMutableFeatureGate = pristineGates.DeepCopy()
	utilfeature.DefaultFeatureGate = utilfeature.DefaultMutableFeatureGate
	eviction.DefaultEvictionHard = maps.Clone(pristineEviction)
	// A kubelet before 1.32 decodes drop-ins into this very list.
	defaults.DefaultNodeAllocatableEnforcement = slices.Clone(pristineEnforced)
}

// load goes the way of cmd/kubelet/app/server.go:NewKubeletCommand, from its arguments to the validation.
func load(arguments []string, machine *Machine) Answer {
	reset()
	config, err := read(arguments)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	external := &kubeletconfigv1beta1.KubeletConfiguration{}
	scheme, _, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		return Answer{Error: err.Error()}
	}
	if err := scheme.Convert(config, external, nil); err != nil {
		return Answer{Error: err.Error()}
	}
	return Answer{Config: external, Validation: whyNotStart(config, machine)}
}

// read is what the kubelet does with its arguments before it sets feature gates and validates.
func read(arguments []string) (*kubeletconfig.KubeletConfiguration, error) {
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.SetOutput(io.Discard)
	kubeletFlags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	kubeletFlags.AddFlags(flags)
	options.AddKubeletConfigFlags(flags, config)
	options.AddGlobalFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return nil, fmt.Errorf("failed to parse kubelet flag: %w", err)
	}
	if rest := flags.Args(); len(rest) > 0 {
		return nil, fmt.Errorf("unknown command %+s", rest[0])
	}
	if len(kubeletFlags.KubeletConfigFile) > 0 {
		if config, err = loadFile(kubeletFlags.KubeletConfigFile); err != nil {
			return nil, fmt.Errorf("failed to load kubelet config file, path: %s, error: %w", kubeletFlags.KubeletConfigFile, err)
		}
	}
	if len(kubeletFlags.KubeletDropinConfigDirectory) > 0 {
		if err := mergeDropIns(config, kubeletFlags.KubeletDropinConfigDirectory); err != nil {
			return nil, fmt.Errorf("failed to merge kubelet configs: %w", err)
		}
	}
	if len(kubeletFlags.KubeletConfigFile) > 0 || len(kubeletFlags.KubeletDropinConfigDirectory) > 0 {
		if err := kubeletConfigFlagPrecedence(config, arguments); err != nil {
			return nil, fmt.Errorf("failed to precedence kubeletConfigFlag: %w", err)
		}
	}
	return config, nil
}

// whyNotStart are the kubelet's own sentences: of its feature gates, its logging and its configuration.
func whyNotStart(config *kubeletconfig.KubeletConfiguration, machine *Machine) []string {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return sentences(err)
	}
	if errs := logsapi.Validate(&config.Logging, utilfeature.DefaultFeatureGate, field.NewPath("logging")); len(errs) > 0 {
		return sentences(errs.ToAggregate())
	}
	if err := kubeletvalidation.ValidateKubeletConfiguration(config, utilfeature.DefaultFeatureGate); err != nil {
		return sentences(err)
	}
	if err := afterValidation(config, machine); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func sentences(err error) []string {
	all, several := err.(errors.Aggregate)
	if !several {
		return []string{err.Error()}
	}
	var said []string
	for _, one := range all.Errors() {
		said = append(said, one.Error())
	}
	return said
}

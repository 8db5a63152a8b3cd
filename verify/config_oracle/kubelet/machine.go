package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	_ "unsafe"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
	"k8s.io/utils/cpuset"
)

// Machine is what the kubelet's checks after validation need of its machine.
type Machine struct {
	// Memory is in bytes.
	Memory int64 `json:"memory"`
	// NUMANodes are as many, with ids from 0 on.
	NUMANodes int `json:"numaNodes"`
}

//go:linkname parseResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func parseResourceList(m map[string]string) (v1.ResourceList, error)

//go:linkname hardEvictionReservation k8s.io/kubernetes/pkg/kubelet/cm.hardEvictionReservation
func hardEvictionReservation(thresholds []evictionapi.Threshold, capacity v1.ResourceList) v1.ResourceList

func init() {
	// As cmd/kubelet/kubelet.go does it by an import that needs more modules.
	if err := logsapi.RegisterLogFormat(logsapi.JSONLogFormat, jsonFormat{}, logsapi.LoggingBetaOptions); err != nil {
		panic(err)
	}
}

// jsonFormat is a format that nothing is ever logged in.
type jsonFormat struct{}

func (jsonFormat) Create(logsapi.LoggingConfiguration, logsapi.LoggingOptions) (logr.Logger, logsapi.RuntimeControl) {
	return logr.Discard(), logsapi.RuntimeControl{}
}

// afterValidation is what the kubelet checks once its configuration is valid, as far as its settings decide it: the
// steps of UnsecuredDependencies and run in cmd/kubelet/app/server.go, and of NewMainKubelet in pkg/kubelet/kubelet.go.
func afterValidation(config *kubeletconfig.KubeletConfiguration, machine *Machine) error {
	if _, err := cliflag.TLSCipherSuites(config.TLSCipherSuites); err != nil {
		return err
	}
	if _, err := cliflag.TLSVersion(config.TLSMinVersion); err != nil {
		return err
	}
	if err := checkCurves(config); err != nil {
		return err
	}
	switch config.Authorization.Mode {
	case kubeletconfig.KubeletAuthorizationModeAlwaysAllow, kubeletconfig.KubeletAuthorizationModeWebhook:
	default:
		return fmt.Errorf("unknown authorization mode %s", config.Authorization.Mode)
	}
	reserved, err := reservedFor(config)
	if err != nil {
		return err
	}
	hard, err := eviction.ParseThresholdConfig([]string{}, config.EvictionHard, nil, nil, nil)
	if err != nil {
		return err
	}
	if _, err := cm.ParseQOSReserved(config.QOSReserved); err != nil {
		return fmt.Errorf("--qos-reserved value failed to parse: %w", err)
	}
	if utilfeature.DefaultFeatureGate.Enabled("NodeSwap") && !isCgroup2() &&
		config.MemorySwap.SwapBehavior == "LimitedSwap" {
		return fmt.Errorf("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")
	}
	if machine != nil && config.MemoryManagerPolicy == "Static" && hasMemoryManager() {
		if err := machine.checkReservedMemory(config, reserved, hard); err != nil {
			return err
		}
	}
	return newMainKubelet(config)
}

// isCgroup2 is IsCgroup2UnifiedMode, which moves from one package to another between releases.
func isCgroup2() bool {
	const superMagic = 0x63677270
	var mounted syscall.Statfs_t
	return syscall.Statfs("/sys/fs/cgroup", &mounted) == nil && mounted.Type == superMagic
}

// hasMemoryManager says whether there is one: a feature gate decides it up to 1.31.
func hasMemoryManager() bool {
	_, known := utilfeature.DefaultMutableFeatureGate.GetAll()["MemoryManager"]
	return !known || utilfeature.DefaultFeatureGate.Enabled("MemoryManager")
}

// reservedFor is what is reserved for the system and for the kubelet.
func reservedFor(config *kubeletconfig.KubeletConfiguration) ([]v1.ResourceList, error) {
	cpus, err := cpuset.Parse(config.ReservedSystemCPUs)
	if err != nil {
		return nil, err
	}
	if cpus.Size() > 0 {
		delete(config.KubeReserved, "cpu")
		if config.SystemReserved == nil {
			config.SystemReserved = map[string]string{}
		}
		config.SystemReserved["cpu"] = fmt.Sprint(cpus.Size())
	}
	kube, err := parseResourceList(config.KubeReserved)
	if err != nil {
		return nil, fmt.Errorf("--kube-reserved value failed to parse: %w", err)
	}
	system, err := parseResourceList(config.SystemReserved)
	if err != nil {
		return nil, fmt.Errorf("--system-reserved value failed to parse: %w", err)
	}
	return []v1.ResourceList{system, kube}, nil
}

// checkReservedMemory is memorymanager.NewManager's check. The sums are those of GetNodeAllocatableReservation in
// pkg/kubelet/cm/node_container_manager_linux.go, a method of a container manager that needs cgroups.
func (m *Machine) checkReservedMemory(
	config *kubeletconfig.KubeletConfiguration, reserved []v1.ResourceList, hard []evictionapi.Threshold,
) error {
	capacity := v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI)}
	value := resource.NewQuantity(0, resource.DecimalSI)
	for _, list := range append(reserved, hardEvictionReservation(hard, capacity)) {
		value.Add(list[v1.ResourceMemory])
	}
	allocatable := v1.ResourceList{}
	if !value.IsZero() {
		allocatable[v1.ResourceMemory] = *value
	}
	_, err := getSystemReservedMemory(m.info(), allocatable, config.ReservedMemory)
	return err
}

// newMainKubelet is what NewMainKubelet and the start of the container manager refuse.
func newMainKubelet(config *kubeletconfig.KubeletConfiguration) error {
	if config.SyncFrequency.Duration <= 0 {
		return fmt.Errorf("invalid sync frequency %d", config.SyncFrequency.Duration)
	}
	if _, err := eviction.ParseThresholdConfig(config.EnforceNodeAllocatable, config.EvictionHard, config.EvictionSoft,
		config.EvictionSoftGracePeriod, config.EvictionMinimumReclaim); err != nil {
		return err
	}
	switch config.ConfigMapAndSecretChangeDetectionStrategy {
	case kubeletconfig.WatchChangeDetectionStrategy:
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
	case kubeletconfig.GetChangeDetectionStrategy:
	default:
		return fmt.Errorf("unknown configmap and secret manager mode: %v", config.ConfigMapAndSecretChangeDetectionStrategy)
	}
	if _, err := logs.NewContainerLogManager(nil, nil, config.ContainerLogMaxSize, int(config.ContainerLogMaxFiles),
		int(config.ContainerLogMaxWorkers), config.ContainerLogMonitorInterval); err != nil {
		return fmt.Errorf("failed to initialize container log manager: %v", err)
	}
	if _, err := sysctl.NewAllowlist(config.AllowedUnsafeSysctls); err != nil {
		return err
	}
	if err := serve2(config); err != nil {
		return err
	}
	if config.SystemCgroups == "/" {
		return fmt.Errorf("system container cannot be root (\"/\")")
	}
	return nil
}

// serve2 is what the server refuses as it begins to listen: it returns at once, because its listener is closed.
func serve2(config *kubeletconfig.KubeletConfiguration) error {
	ciphers, _ := cliflag.TLSCipherSuites(config.TLSCipherSuites)
	version, _ := cliflag.TLSVersion(config.TLSMinVersion)
	listener, err := net.Listen("unix", "")
	if err != nil {
		return err
	}
	listener.Close()
	server := &http.Server{TLSConfig: &tls.Config{CipherSuites: ciphers, MinVersion: version, Certificates: make([]tls.Certificate, 1)}}
	if err := server.ServeTLS(listener, "", ""); config.EnableServer && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

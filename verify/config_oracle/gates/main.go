// The feature gates that a release's kubelet knows, as one JSON object.
//
// It registers what the kubelet's packages register (cmd/kubelet/app/server.go:init, pkg/kubelet/server/server.go:init)
// and nothing else of the kubelet, so that eight releases are built in minutes.
package main

import (
	"encoding/json"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"

	_ "k8s.io/apiserver/pkg/features"
	_ "k8s.io/kubernetes/pkg/features"
)

func main() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	utilruntime.Must(metricsfeatures.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	known := map[string][3]any{}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		known[string(name)] = [3]any{string(spec.PreRelease), spec.Default, spec.LockToDefault}
	}
	utilruntime.Must(json.NewEncoder(os.Stdout).Encode(map[string]any{"gates": known, "dependencies": dependencies()}))
}

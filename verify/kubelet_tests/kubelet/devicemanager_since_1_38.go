//go:build since138

package devicemanager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
)

// reserve notes the chosen devices as the kubelet does until their plugin has answered.
func (m *ManagerImpl) reserve(uid, container, resource string, ids []string) error {
	if !m.podDevices.reserve(uid, container, resource) {
		return fmt.Errorf("device allocation already in progress for pod %q container %q resource %q", uid, container, resource)
	}
	m.podDevices.addDevicesToReservation(uid, container, resource, sets.New(ids...))
	return nil
}

func isCommitted(info deviceAllocateInfo) bool { return info.state == allocationCommitted }

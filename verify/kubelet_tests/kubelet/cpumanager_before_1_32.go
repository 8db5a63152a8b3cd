//go:build !since132

package cpumanager

func tooFewPhysicalCPUs(available, requested, perCore int) error {
	return SMTAlignmentError{RequestedCPUs: requested, CpusPerCore: perCore, AvailablePhysicalCPUs: available}
}

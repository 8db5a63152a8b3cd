//go:build !since133

package main

// otherStates are none: these kubelets read no further file that their default feature gates use.
func otherStates(string) map[string]func() error { return nil }

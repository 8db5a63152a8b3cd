//go:build !since135

package main

func dependencies() map[string][]string { return nil }

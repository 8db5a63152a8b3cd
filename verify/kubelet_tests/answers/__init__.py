"""Replay's answers to the kubelet's functions: one module for each of the kubelet's packages."""

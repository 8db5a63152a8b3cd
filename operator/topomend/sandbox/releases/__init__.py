"""The binaries of Kubernetes' releases, built from Go modules.

Owns the choice of the Go toolchain, the modules of a release and the cache. The Go sources are in ``../binary``.
"""

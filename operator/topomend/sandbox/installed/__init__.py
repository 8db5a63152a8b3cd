"""topomend in the sandbox, as its manifests install it: each pod's account, token, mounts and program."""

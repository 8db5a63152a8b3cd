"""A node of the sandbox: the machine that its kubelet sees, the kubelet's configuration, and the pods' resources."""

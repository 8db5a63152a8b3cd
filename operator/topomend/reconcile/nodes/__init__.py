"""What is kept up to date of nodes: startup taints, silent agents, DeviceClasses, and which nodes are set aside."""

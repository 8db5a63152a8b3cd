"""The kubelet's state files: how they are written, what they hold, and whether its managers start from them."""

"""The fragmentation of random clusters compared with the share of probe pods that their kubelets refuse."""

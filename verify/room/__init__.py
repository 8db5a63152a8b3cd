"""``kubectl numa make-room`` compared: with every set of pods on random clusters, and with real kubelets."""

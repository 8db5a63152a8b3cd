"""How ``aligned`` tells pods with devices by claims, beside their kubelets and their claims."""

"""What ``what-if`` predicts, beside real kubelets that are given another policy."""

"""The kubelet's admission of a pod from handler to handler, and the rules that it shares with the scheduler."""

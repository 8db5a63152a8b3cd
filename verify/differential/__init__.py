"""Random workloads on one real cluster, first under the plain scheduler alone and then steered.

Whatever runs plain must run steered, and no kubelet may refuse a steered pod.
"""

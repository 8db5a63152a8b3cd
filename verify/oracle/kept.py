"""The kept cases: one JSON file for each mistake that replay once made, and for each edge of the kubelet's rules."""

from pathlib import Path

KEPT = tuple(sorted((Path(__file__).parent / "cases").glob("*.json")))
"""The files of all kept cases, by name. ``kubelet/case.go`` describes their format."""

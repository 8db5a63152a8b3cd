"""Devices of ResourceClaims and ResourceSlices (dynamic resource allocation, KEP-4381)."""

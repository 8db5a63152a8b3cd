"""The devices that the cluster has for ResourceClaims, as a verb asks about them."""

"""What commands are given: manifests, their templates and unknown fields, and the nearest name for a wrong one."""

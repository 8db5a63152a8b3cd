"""Read the objects by which devices are claimed, as one question needs them."""

"""What to do about a refused pod: one plan, with its reason. Asks replay; has no effects and no clock."""

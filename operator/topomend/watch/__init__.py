"""Events folded into one view of the cluster: nodes, what was refused, what is on its way. No decisions."""

"""Mode ``observe``: what stands in the reconciler's place, and how it ends what mode ``relaunch`` has left."""

"""The campaign that moves pods for better places, slowly and one after another; off by default."""

"""An admission check of Kueue: a workload is admitted once all its pods fit by replay."""

"""Who of the waiting pods is first: their order, the nodes reserved for the earliest, and who is evicted for whom."""

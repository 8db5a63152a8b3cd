"""What waits and in which order: fair queues, the work queue, an inbox in bounds, permits and token buckets."""

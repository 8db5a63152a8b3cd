"""The HTTP server of health endpoints, metrics and the webhook."""

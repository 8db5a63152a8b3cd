"""How new pods get their gates and stamps at creation: by policies where the API server has them, else by a webhook.

Owns the policies and webhooks as objects, which of them are in force, the webhook's answers and its certificate.
Leaves which pods wait for which nodes to ``reconcile``.
"""

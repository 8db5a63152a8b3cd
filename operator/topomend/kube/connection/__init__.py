"""How a server is reached and by whose account: kubeconfigs, credentials, TLS, proxies and the transport."""

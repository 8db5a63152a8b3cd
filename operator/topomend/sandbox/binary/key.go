package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// writeKey writes a new private key, readable by its owner alone, to the file named by its one argument. The API
// server signs service account tokens with it.
func writeKey(arguments []string) int {
	if len(arguments) != 1 {
		fmt.Fprintln(os.Stderr, "usage: topomend-sandbox key FILE")
		return 2
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Fprintf(os.Stderr, "topomend-sandbox: key: %v\n", err)
		return 1
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		fmt.Fprintf(os.Stderr, "topomend-sandbox: key: %v\n", err)
		return 1
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(arguments[0], text, 0o600); err != nil {
		fmt.Fprintf(os.Stderr, "topomend-sandbox: key: %v\n", err)
		return 1
	}
	return 0
}

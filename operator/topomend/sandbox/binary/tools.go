package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func init() {
	programs["etcd"] = func([]string) int {
		etcdmain.Main(os.Args)
		return 0
	}
	programs["cri"] = serveFakeRuntimes
	programs["key"] = writeKey
}

// Command idle is what a pod's sandbox and the pods of the tests run: it waits until it is asked to end. It needs
// nothing but a kernel, so that its image is this one file.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = "usage: idle | idle for DURATION | idle show FILE..."

func main() {
	switch {
	case len(os.Args) == 1:
		wait(nil)
	case len(os.Args) == 3 && os.Args[1] == "for":
		duration, err := time.ParseDuration(os.Args[2])
		end(err)
		wait(time.After(duration))
	case len(os.Args) > 2 && os.Args[1] == "show":
		for _, name := range os.Args[2:] {
			content, err := os.ReadFile(name)
			end(err)
			os.Stdout.Write(content)
		}
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
}

// wait returns when it is time, or when a signal asks to end.
func wait(over <-chan time.Time) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-asked:
	case <-over:
	}
}

// end ends the program where there is an error, and says which.
func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

// The oracle: a kubelet's own resource managers, taken from k8s.io/kubernetes and put together as the kubelet does,
// asked what they would decide. It reads one case a line from standard input and answers each with one line of JSON.
// With the argument "bench" it measures the Topology Manager's merge instead.
//
// It owns the assembly of the real managers and nothing of their rules. What a case means is told in case.go.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

const defaultTimeout = 10 * time.Second

func main() {
	klog.SetLogger(logr.Discard())
	debug.SetGCPercent(400) // cases are small and short-lived: memory is cheaper than time here
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		if err := bench(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// serve answers case after case. A case that runs into its time-out ends the process after its answer, since the
// goroutine that is stuck in the kubelet's code cannot be stopped; whoever asks starts a new one.
func serve() error {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return nil
		}
		var given Case
		decoder := json.NewDecoder(strings.NewReader(string(line)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&given); err != nil {
			return fmt.Errorf("not a case: %w", err)
		}
		answer, timedOut := answerInTime(&given)
		if err := output.Encode(answer); err != nil {
			return err
		}
		if timedOut {
			os.Exit(0)
		}
	}
}

func answerInTime(given *Case) (Answer, bool) {
	timeout := defaultTimeout
	if given.TimeoutSeconds > 0 {
		timeout = time.Duration(given.TimeoutSeconds * float64(time.Second))
	}
	done := make(chan Answer, 1)
	go func() { done <- answerCase(given) }()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case answer := <-done:
		return answer, false
	case <-timer.C:
		return Answer{Timeout: true}, true
	}
}

// answerCase turns a panic of the kubelet's code into an answer: a kubelet that falls over is a finding too.
func answerCase(given *Case) (answer Answer) {
	defer func() {
		if cause := recover(); cause != nil {
			answer.Panic = fmt.Sprint(cause)
		}
	}()
	if given.Merge != nil {
		merged, err := merge(given.Merge)
		if err != nil {
			return Answer{Refused: err.Error()}
		}
		return Answer{Merged: merged}
	}
	if given.Restore != nil {
		restored, err := restore(given)
		if err != nil {
			return Answer{Refused: err.Error()}
		}
		return Answer{Restored: restored}
	}
	node, err := startNode(given)
	if err != nil {
		return Answer{Refused: err.Error()}
	}
	for index := range given.Steps {
		answer.Steps = append(answer.Steps, StepAnswer{})
		step, said := &given.Steps[index], &answer.Steps[index]
		if step.Restart {
			if node, err = node.restart(given, step); err != nil {
				said.Refused = err.Error()
				return answer
			}
		}
		node.take(given, step, said)
	}
	return answer
}

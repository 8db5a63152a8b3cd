// Package topomend asks topomend's replay for the answers of the kubelet's functions that stand in its place.
//
// Replay runs in one process beside each test binary and answers JSON lines. Each answer leaves a line in the output
// of the test that asked, so that a reader of the output knows which test was answered by what.
package topomend

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Hint is a topology hint; Nodes is nil where it has no affinity. Score is the allocated share, in percent.
type Hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
	Score     int64 `json:"score"`
}

// Refusal is why replay refuses: the reason and the manager's error. Both are empty where it does not.
type Refusal struct {
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

var (
	mutex     sync.Mutex
	questions io.Writer
	answers   *bufio.Reader
)

// Ask sends the arguments of a function and reads replay's answer. It panics where the kubelet would, and where replay
// cannot answer, with the reason.
func Ask(function string, arguments map[string]any, answer any) {
	mutex.Lock()
	defer mutex.Unlock()
	if answers == nil {
		start()
	}
	question, err := json.Marshal(map[string]any{"function": function, "gates": gates(), "arguments": arguments})
	must(err)
	_, err = questions.Write(append(question, '\n'))
	must(err)
	line, err := answers.ReadBytes('\n')
	must(err)
	var reply struct {
		Panic  string
		Answer json.RawMessage
	}
	must(json.Unmarshal(line, &reply))
	fmt.Printf("answered by replay: %s\n", function)
	if reply.Panic != "" {
		panic(reply.Panic)
	}
	must(json.Unmarshal(reply.Answer, answer))
}

func start() {
	replay := exec.Command(os.Getenv("TOPOMEND_PYTHON"), "-m", "verify.kubelet_tests.answers")
	replay.Dir = os.Getenv("TOPOMEND_PROJECT")
	replay.Stderr = os.Stderr
	in, err := replay.StdinPipe()
	must(err)
	out, err := replay.StdoutPipe()
	must(err)
	must(replay.Start())
	questions, answers = in, bufio.NewReader(out)
}

func gates() map[string]bool {
	enabled := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		enabled[string(name)] = utilfeature.DefaultFeatureGate.Enabled(name)
	}
	return enabled
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("replay gives no answer: %v", err))
	}
}

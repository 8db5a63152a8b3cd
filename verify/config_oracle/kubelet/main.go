// The oracle of configurations: a kubelet's own loader and validation, asked what it reads from files and flags. It
// reads one case a line from standard input and answers each with one line of JSON.
//
// It owns the order of the steps, as cmd/kubelet/app/server.go:NewKubeletCommand has them, and nothing of their rules.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Case is what a kubelet is started with. Contents are base64 in JSON, since a file need not be UTF-8.
type Case struct {
	// Document asks for nothing else than what the text is as JSON.
	Document *[]byte `json:"document"`
	// File is the content of the file that --config names; absent: the flag is not given.
	File *[]byte `json:"file"`
	// DropIns are the files below the folder that --config-dir names, by relative path; absent: it is not given.
	DropIns map[string][]byte `json:"dropIns"`
	// Links are symbolic links below that folder: relative path -> target.
	Links map[string]string `json:"links"`
	// Flags are further arguments of the command line.
	Flags []string `json:"flags"`
	// Machine is what the kubelet finds on its machine; absent: the checks that need it are left out.
	Machine *Machine `json:"machine"`
}

// Answer is what the kubelet makes of a case.
type Answer struct {
	// Error is why the configuration cannot be read; empty if it can be.
	Error string `json:"error,omitempty"`
	// Config is the effective configuration as v1beta1: after drop-ins, defaults and flags.
	Config any `json:"config,omitempty"`
	// Validation are the sentences of ValidateKubeletConfiguration and of the other checks before the kubelet starts.
	Validation []string `json:"validation,omitempty"`
	// Warning is why the file was decoded leniently.
	Warning string `json:"warning,omitempty"`
	// Document is the text as JSON.
	Document json.RawMessage `json:"document,omitempty"`
	// Panic is what the kubelet's code panicked with.
	Panic string `json:"panic,omitempty"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "schema" {
		if err := json.NewEncoder(os.Stdout).Encode(facts()); err != nil {
			panic(err)
		}
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func serve() error {
	folder, err := os.MkdirTemp("", "config-oracle")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
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
		answer, err := answerIn(folder, &given)
		if err != nil {
			return err
		}
		if err := output.Encode(answer); err != nil {
			return err
		}
	}
}

// answerIn lays the case's files out in folder, and clears it afterwards.
func answerIn(folder string, given *Case) (answer Answer, err error) {
	if given.Document != nil {
		return document(*given.Document), nil
	}
	root := filepath.Join(folder, "case")
	defer os.RemoveAll(root)
	arguments, err := layOut(root, given)
	if err != nil {
		return Answer{}, err
	}
	var warnings []string
	klog.SetLogger(logr.New(&sink{warnings: &warnings}))
	defer func() {
		if cause := recover(); cause != nil {
			answer.Panic = fmt.Sprint(cause)
		}
	}()
	answer = load(arguments, given.Machine)
	answer.Warning = strings.Join(warnings, "; ")
	return answer, nil
}

// document is a text as the decoders of Kubernetes see it: JSON as it is, YAML turned into JSON.
func document(text []byte) (answer Answer) {
	if !yaml.IsJSONBuffer(text) {
		converted, err := sigsyaml.YAMLToJSON(text)
		if err != nil {
			return Answer{Error: err.Error()}
		}
		return Answer{Document: converted}
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &value); err != nil {
		return Answer{Error: err.Error()}
	}
	converted, err := json.Marshal(value)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return Answer{Document: converted}
}

func layOut(root string, given *Case) ([]string, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	var arguments []string
	if given.File != nil {
		path := filepath.Join(root, "kubelet.yaml")
		if err := os.WriteFile(path, *given.File, 0o600); err != nil {
			return nil, err
		}
		arguments = append(arguments, "--config="+path)
	}
	if given.DropIns != nil {
		dropIns := filepath.Join(root, "conf.d")
		if err := os.MkdirAll(dropIns, 0o700); err != nil {
			return nil, err
		}
		for name, content := range given.DropIns {
			path := filepath.Join(dropIns, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				return nil, err
			}
		}
		for name, target := range given.Links {
			path := filepath.Join(dropIns, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			if err := os.Symlink(target, path); err != nil {
				return nil, err
			}
		}
		arguments = append(arguments, "--config-dir="+dropIns)
	}
	return append(arguments, given.Flags...), nil
}

// sink keeps the reason for which a file was decoded leniently, and drops everything else that is logged.
type sink struct{ warnings *[]string }

func (s *sink) Init(logr.RuntimeInfo)          {}
func (s *sink) Enabled(int) bool               { return true }
func (s *sink) Error(error, string, ...any)    {}
func (s *sink) WithValues(...any) logr.LogSink { return s }
func (s *sink) WithName(string) logr.LogSink   { return s }
func (s *sink) Info(_ int, message string, pairs ...any) {
	if !strings.Contains(message, "lenient") {
		return
	}
	for index := 0; index+1 < len(pairs); index += 2 {
		if pairs[index] == "err" {
			*s.warnings = append(*s.warnings, fmt.Sprint(pairs[index+1]))
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Heap is the size of the heap that a flag sets for a container. The zero value is none.
type Heap struct {
	// Bytes is the size; 0 if it is a share of the memory limit.
	Bytes int64
	// Flag is the flag and its place, such as "-Xmx2g in env JAVA_TOOL_OPTIONS". It leaves out the text around it,
	// which may be a secret.
	Flag string
}

// heapFlag matches a word that sets the heap of a Java or a Node.js process.
var heapFlag = regexp.MustCompile(`^(?:(?:-Xmx|-XX:MaxHeapSize=)([0-9]{1,18})([kKmMgGtT]?)|--max[-_]old[-_]space[-_]size=([0-9]{1,12})|-XX:MaxRAMPercentage=[0-9]{1,3}(?:\.[0-9]{1,6})?)$`)

// goMemoryLimit matches the value of the variable that limits the memory of a Go process.
var goMemoryLimit = regexp.MustCompile(`^([0-9]{1,18})(?:B|([KMGT])iB)?$`)

// goMemoryVariable is the name of that variable. Its value may be the container's memory limit at its start.
const (
	goMemoryVariable = "GOMEMLIMIT"
	limitAtStart     = "limits.memory"
)

// flagAt is a word that sets a heap, and where it is.
type flagAt struct {
	word, variable string // of the environment; empty for a word in args or command
	inCommand      bool
	bytes          int64
}

func (f flagAt) heap() Heap {
	switch {
	case f.word == "":
		return Heap{}
	case f.word == limitAtStart:
		return Heap{Flag: goMemoryVariable + " from " + limitAtStart}
	case f.variable == goMemoryVariable:
		return Heap{f.bytes, f.variable + "=" + f.word + " in env"}
	case f.variable != "":
		return Heap{f.bytes, f.word + " in env " + f.variable}
	case f.inCommand:
		return Heap{f.bytes, f.word + " in command"}
	}
	return Heap{f.bytes, f.word + " in args"}
}

// heapFlagOf is the flag with the largest heap of a container, or else one that sets a share of the memory limit. Which
// of several flags counts depends on the runtime.
func heapFlagOf(c *corev1.Container) (found flagAt) {
	note := func(f flagAt) {
		if found.word == "" || f.bytes > found.bytes {
			found = f
		}
	}
	words := func(text, variable string, inCommand bool) {
		if !strings.Contains(text, "-X") && !strings.Contains(text, "--max") {
			return
		}
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"';&|()", r) }) {
			if bytes, ok := heapOf(word); ok {
				note(flagAt{word, variable, inCommand, bytes})
			}
		}
	}
	for _, text := range c.Command {
		words(text, "", true)
	}
	for _, text := range c.Args {
		words(text, "", false)
	}
	for _, env := range c.Env {
		if env.Name != goMemoryVariable {
			words(env.Value, env.Name, false)
		} else if f := goFlagOf(env, c.Name); f.word != "" {
			note(f)
		}
	}
	return found
}

// goFlagOf is the flag in the variable that limits the memory of a Go process: an amount, or the limit of its container.
func goFlagOf(env corev1.EnvVar, container string) flagAt {
	if env.ValueFrom != nil && env.ValueFrom.ResourceFieldRef != nil {
		of := env.ValueFrom.ResourceFieldRef
		if isOwn := of.ContainerName == "" || of.ContainerName == container; isOwn && of.Resource == limitAtStart {
			return flagAt{limitAtStart, env.Name, false, 0}
		}
	}
	m := goMemoryLimit.FindStringSubmatch(env.Value)
	if m == nil || sizeIn(m[1], m[2]) == 0 {
		return flagAt{}
	}
	return flagAt{env.Value, env.Name, false, sizeIn(m[1], m[2])}
}

// heapOf is the heap that a word sets; 0 for a share of the memory limit.
func heapOf(word string) (bytes int64, ok bool) {
	switch m := heapFlag.FindStringSubmatch(word); {
	case m == nil:
		return 0, false
	case m[1] != "":
		bytes = sizeIn(m[1], m[2])
		return bytes, bytes > 0
	case m[3] != "":
		bytes = sizeIn(m[3], "M")
		return bytes, bytes > 0
	}
	return 0, true
}

// sizeIn is a number of bytes, or of a unit; 0 if out of range.
func sizeIn(number, unit string) int64 {
	n, err := strconv.ParseInt(number, 10, 64)
	shift := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[strings.ToUpper(unit)]
	if err != nil || n > quantity.MaxMemoryBytes>>shift {
		return 0
	}
	return n << shift
}

// readHeaps are the heaps that flags set, by container, or nil.
func readHeaps(spec *corev1.PodSpec) (heaps map[string]Heap) {
	for _, c := range LongRunning(spec) {
		if flag := heapFlagOf(c); flag.word != "" {
			if heaps == nil {
				heaps = map[string]Heap{}
			}
			heaps[c.Name] = flag.heap()
		}
	}
	return heaps
}

// KeepHeap copies the flag that sets a container's heap, which ReadDeployment reads from the command, arguments and
// environment.
func KeepHeap(to, from *corev1.Container) {
	switch flag := heapFlagOf(from); {
	case flag.word == "":
	case flag.word == limitAtStart:
		to.Env = []corev1.EnvVar{{Name: flag.variable, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: limitAtStart}}}}
	case flag.variable != "":
		to.Env = []corev1.EnvVar{{Name: flag.variable, Value: flag.word}}
	case flag.inCommand:
		to.Command = []string{flag.word}
	default:
		to.Args = []string{flag.word}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command stress is the only program in the pods of the node tier: the process that holds a pod's namespaces, and a load whose
// size is set from outside.
//
//	stress pause
//	stress serve [-addr :8080] [-cpu MILLICORES] [-memory MIB] [-heap PERCENT] [-file PATH -read MIB] [-needs MIB] [-work SECONDS]
//
// -heap is for memory in percent of the limit at the start, as a JVM sizes its heap. -read is for a file of that size that is
// written once and then read again and again. -needs ends the process at once if the limit is lower, as a heap below its minimum
// does, and -work is processor time before it is ready.
//
// A serving process answers to GET only, so that "kubectl get --raw .../proxy/..." can be used to talk to it:
//
//	/set?cpu=300&memory=64  change either or both; answers when the memory is resident
//	/set?goheap=100         hold MiB in Go's heap instead, and make garbage
//	/healthz                200 once the first memory is resident
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	switch command {
	case "pause":
		pause()
	case "serve":
		if err := serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: stress pause | stress serve [-addr :8080] [-cpu MILLICORES] [-memory MIB] [-heap PERCENT] [-file PATH -read MIB] [-needs MIB] [-work SECONDS]")
		os.Exit(2)
	}
}

// pause does nothing until a signal ends it.
func pause() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}

type server struct {
	burner burner
	ballast
	goHeap goHeap
	ready  atomic.Bool
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	addr := flags.String("addr", ":8080", "address to listen on")
	cpu := flags.Int64("cpu", 0, "millicores to burn")
	memory := flags.Int64("memory", 0, "MiB to hold")
	heap := flags.Int64("heap", 0, "percent of the memory limit to hold instead")
	file := flags.String("file", "", "a file to write and read")
	read := flags.Int64("read", 0, "MiB of the file")
	needs := flags.Int64("needs", 0, "MiB that the memory limit must have")
	work := flags.Int("work", 0, "seconds of processor time before it is ready")
	_ = flags.Parse(args)
	if *heap > 0 || *needs > 0 {
		limit, err := memoryLimit()
		if err != nil {
			return err
		}
		if limit < *needs {
			return fmt.Errorf("the memory limit is %d MiB, and %d are needed", limit, *needs)
		}
		if *heap > 0 {
			*memory = limit * *heap / 100
		}
	}
	if *file != "" {
		go func() { fmt.Fprintln(os.Stderr, readForever(*file, *read)) }()
	}

	go func() {
		pause() // process 1 of a container gets no default action for signals
		os.Exit(0)
	}()

	s := &server{}
	go func() {
		// In the background, so that liveness does not depend on the amount.
		if err := s.hold(*memory); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		runtime.LockOSThread() // so that the thread's clock is ours
		burn(time.Duration(*work) * time.Second)
		s.burner.set(*cpu)
		s.ready.Store(true)
	}()
	fmt.Printf("serving on %s: %d millicores, %d MiB\nGOMEMLIMIT: %d\n", *addr, *cpu, *memory, debug.SetMemoryLimit(-1))
	return http.ListenAndServe(*addr, s.routes())
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "filling memory", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /set", s.set)
	return mux
}

func (s *server) set(w http.ResponseWriter, r *http.Request) {
	cpu, cpuErr := amount(r, "cpu", s.burner.millicores.Load())
	memory, memoryErr := amount(r, "memory", s.held())
	heap, heapErr := amount(r, "goheap", 0)
	if err := errors.Join(cpuErr, memoryErr, heapErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if heap > 0 {
		s.goHeap.set(heap)
	}
	s.burner.set(cpu)
	if err := s.hold(memory); err != nil {
		http.Error(w, err.Error(), http.StatusInsufficientStorage)
		return
	}
	fmt.Fprintf(w, "%d millicores, %d MiB\n", cpu, memory)
}

// amount returns a number from the query, or the present value if the query does not have it.
func amount(r *http.Request, name string, now int64) (int64, error) {
	if !r.URL.Query().Has(name) {
		return now, nil
	}
	return strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// burner uses a set amount of processor time per second, no matter how fast the machine is or how busy.
type burner struct {
	millicores atomic.Int64
	mu         sync.Mutex
	workers    int64
}

// set changes the amount. A thread can burn one core at most, so there are as many as it takes; workers without work sleep.
func (b *burner) set(millicores int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.millicores.Store(millicores)
	for b.workers < (millicores+999)/1000 {
		go b.work(b.workers)
		b.workers++
	}
}

// share is the load of worker number i: 2300 millicores are 1000, 1000, 300.
func share(millicores, i int64) int64 { return min(1000, max(0, millicores-1000*i)) }

// beat is the period of a worker's load. Later beats do not make up for load that a limit has prevented.
const beat = 10 * time.Millisecond

func (b *burner) work(i int64) {
	runtime.LockOSThread() // so that the thread's clock is ours
	for range time.Tick(beat) {
		if d := beat * time.Duration(share(b.millicores.Load(), i)) / 1000; d > 0 {
			burn(d)
		}
	}
}

// burn computes until the thread has used d of processor time.
func burn(d time.Duration) {
	x := uint64(1)
	for start := spent(); spent()-start < d; {
		for range 20_000 {
			x = x*6364136223846793005 + 1
		}
		sink.Store(x)
	}
}

// sink keeps the compiler from removing the loop.
var sink atomic.Uint64

// spent is the processor time of the thread.
func spent() time.Duration {
	const rusageThread = 1 // missing in package syscall
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ballast is resident memory. It is mapped outside Go's heap, so that the garbage collector does not change it, and written page
// by page.
type ballast struct {
	mu     sync.Mutex
	blocks [][]byte
}

const blockSize = 1 << 20

func (b *ballast) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.blocks))
}

// hold changes the amount, in MiB.
func (b *ballast) hold(mebibytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for int64(len(b.blocks)) > mebibytes {
		last := len(b.blocks) - 1
		if err := syscall.Munmap(b.blocks[last]); err != nil {
			return fmt.Errorf("returning memory: %w", err)
		}
		b.blocks = b.blocks[:last]
	}
	for int64(len(b.blocks)) < mebibytes {
		block, err := syscall.Mmap(-1, 0, blockSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return fmt.Errorf("getting memory: %w", err)
		}
		// Any value but zero: pages of zeros may be merged.
		for i := 0; i < blockSize; i += 4096 {
			block[i] = byte(i>>12) | 1
		}
		b.blocks = append(b.blocks, block)
	}
	return nil
}

// goHeap is memory in Go's heap. The collector decides how much garbage lies beside it.
type goHeap struct {
	mebibytes atomic.Int64
	once      sync.Once
}

// set changes the amount. The oldest block is replaced at each beat.
func (h *goHeap) set(mebibytes int64) {
	h.mebibytes.Store(mebibytes)
	h.once.Do(func() {
		go func() {
			var blocks [][]byte
			for range time.Tick(beat) {
				blocks = append(blocks, bytes.Repeat([]byte{1}, blockSize))
				blocks = blocks[max(0, int64(len(blocks))-h.mebibytes.Load()):]
			}
		}()
	})
}

// memoryLimit is the memory limit of the container, in MiB.
func memoryLimit() (int64, error) {
	var errs error
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile("/sys/fs/cgroup/" + file)
		if err == nil {
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			return limit >> 20, err
		}
		errs = errors.Join(errs, err)
	}
	return 0, errs
}

// readForever writes a file and reads it again and again, so that it is in the page cache, as far as there is room.
func readForever(file string, mebibytes int64) error {
	block := bytes.Repeat([]byte{1}, blockSize)
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	for range mebibytes {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	for {
		for i := range mebibytes {
			if _, err := f.ReadAt(block, i*blockSize); err != nil {
				return err
			}
			time.Sleep(beat) // a load of memory, not of CPU
		}
	}
}

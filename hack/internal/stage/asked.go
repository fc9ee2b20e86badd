// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// UntilAsked is a context that ends when somebody asks us to: by a signal, by no
// longer reading what we print, or by ending whoever started us. The last matters
// because "go run" passes on no signal but the terminal's.
func UntilAsked() (context.Context, context.CancelFunc) {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, restore) // a second signal does not wait
	ctx, cancel := context.WithCancel(ctx)
	// This one stays caught: the end must not die of having something to say.
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	parent := os.Getppid()
	go func() {
		defer cancel()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-unread:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	return ctx, cancel
}

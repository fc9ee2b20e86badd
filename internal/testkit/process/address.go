// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports that systems give to outgoing connections begin at 32768 or above. One of those could be taken
// before a program listens on it.
const (
	firstPort = 10_000
	ports     = 20_000
	attempts  = 1_000
)

// given are the ports that FreeAddress has returned.
var given sync.Map

// FreeAddress returns an address of this machine, host:port, for a program that is about to be started: no
// process listens on it, and no outgoing connection takes it. It never returns the same address twice.
func FreeAddress() (string, error) {
	var last error
	for range attempts {
		port := firstPort + rand.IntN(ports)
		if _, isGiven := given.LoadOrStore(port, true); isGiven {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			last = err
			continue
		}
		return address, listener.Close()
	}
	return "", errors.Join(fmt.Errorf("no free port after %d attempts", attempts), last)
}

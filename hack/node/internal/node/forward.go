// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io"
	"net"
	"time"
)

// forward passes every connection on to the target. A listening socket stays in the network namespace that created it. So with
// a socket of the host, connections are accepted on the host and dialled inside.
func forward(listener net.Listener, target string) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.DialTimeout("tcp", target, 10*time.Second)
			if err != nil {
				return // the client sees the connection close
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				// Only this direction has ended; an answer may still be on its way.
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

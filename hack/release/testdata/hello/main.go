// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hello stands for the plugin: tests build it for all platforms in seconds.
package main

import "os"

var version string

func main() { _, _ = os.Stdout.WriteString("hello from " + version + "\n") }

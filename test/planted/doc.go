// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planted proves that tests can fail. It plants one bug at a time into the sources of the
// operator, and runs the tests that must find it. The files themselves are not changed: the compiler
// reads the changed ones instead (go help build, -overlay).
package planted

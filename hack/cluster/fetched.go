// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build fetched

package main

import "github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/up"

func init() { up.HasPrograms = true }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet decides which policy sizes which Deployment, the spec of its scaler, and which
// scalers are promoted.
//
// A Deployment has at most one scaler that a policy has created. That scaler has the name of the
// Deployment. A scaler of a user always comes first; then a ScalingPolicy, then a
// ClusterScalingPolicy; then the higher priority, the older one, and the first by name.
package fleet

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// byMeaning compares statuses. Any client may have written the one that it compares with, so
// it compares quantities without converting them: a forged exponent costs no time.
var byMeaning = conversion.EqualitiesOrDie(
	quantity.Equal,
	func(a, b metav1.Time) bool { return a.Equal(&b) },
)

// EqualStatus reports whether two statuses mean the same.
func EqualStatus(a, b v1beta1.VerticalScalerStatus) bool { return byMeaning.DeepEqual(a, b) }

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend_test

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

func TestEveryMarginIsReadAsItWasWritten(t *testing.T) {
	for perMille := range int64(recommend.MaxPerMille + 1) {
		if text := recommend.FormatMargin(perMille); recommend.ParseMargin(text) != perMille {
			t.Fatalf("%d became %q, read as %d", perMille, text, recommend.ParseMargin(text))
		}
	}
	for _, tc := range []struct {
		perMille int64
		text     string
	}{{150, "15%"}, {125, "12.5%"}, {5, "0.5%"}, {0, ""}, {-1, ""}, {1 << 40, "500%"}} {
		if got := recommend.FormatMargin(tc.perMille); got != tc.text {
			t.Errorf("FormatMargin(%d) = %q, want %q", tc.perMille, got, tc.text)
		}
	}
}

func TestTextThatIsNoMarginIsRead(t *testing.T) {
	for text, want := range map[string]int64{
		"15": 0, "%": 0, "1.25%": 0, "-1%": 0, "+1%": 0, "1e2%": 0, ".5%": 5, "1.%": 0, "9999%": 0, "600%": recommend.MaxPerMille, "12,5%": 0,
	} {
		if got := recommend.ParseMargin(text); got != want {
			t.Errorf("ParseMargin(%q) = %d, want %d", text, got, want)
		}
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"slices"
	"testing"
)

// The table is the one in the comment of room.go.
func TestRoomIsSharedBySizeOfTheDemand(t *testing.T) {
	for _, tc := range []struct{ has, wants, left []int64 }{
		{[]int64{1}, []int64{12}, []int64{10}},
		{[]int64{12}, []int64{14}, []int64{12}},
		{[]int64{1, 3}, []int64{6, 3}, []int64{7, 9}},
		{[]int64{1, 1}, []int64{6, 6}, []int64{9, 4}},
		{[]int64{1, 1}, []int64{20, 4}, []int64{6, 9}},
		{[]int64{1, 1}, []int64{9, 9}, []int64{9, 1}},
	} {
		var demands []demand
		for i := range tc.has {
			demands = append(demands, demand{container: fmt.Sprint(i), has: tc.has[i], wants: tc.wants[i]})
		}
		if got := share(10, demands); !slices.Equal(got, tc.left) {
			t.Errorf("a node of 10, has %v, wants %v: %v are left, want %v", tc.has, tc.wants, got, tc.left)
		}
	}
}

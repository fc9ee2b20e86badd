// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/commands"
)

// Every answer of docs/checklist.md is Yes or No, every Yes has evidence, and all evidence exists.
func TestTheChecklistHasEvidence(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "checklist.md"))
	rules, features, found := strings.Cut(page, "\n## Features\n")
	if !found {
		t.Fatal("docs/checklist.md has no features")
	}
	for name, table := range map[string]struct {
		text        string
		rows, least int
	}{
		"rules":    {rules, 50, 46},
		"features": {features, 42, 36},
	} {
		t.Run(name, func(t *testing.T) {
			met := 0
			rows := commands.Rows(table.text)
			for i, row := range rows {
				if answered(t, row, i+1) {
					met++
				}
			}
			if len(rows) != table.rows || met < table.least {
				t.Errorf("%d of %d are met, want at least %d of %d", met, len(rows), table.least, table.rows)
			}
		})
	}
}

// answered reports whether a row says Yes. It checks the row.
func answered(t *testing.T, row commands.Row, number int) bool {
	t.Helper()
	if len(row.Cells) != 4 || row.Cells[0] != strconv.Itoa(number) {
		t.Errorf("row %d is %q", number, row.Cells)
		return false
	}
	evidence := commands.Evidence(row.Cells[3])
	for _, named := range evidence {
		if err := commands.Exists(root, named); err != nil {
			t.Errorf("%d, %s: %v", number, row.Cells[1], err)
		}
	}
	isMet := strings.HasPrefix(row.Cells[2], "Yes")
	if !isMet && !strings.HasPrefix(row.Cells[2], "No") {
		t.Errorf("%d, %s: the answer is %q", number, row.Cells[1], row.Cells[2])
	}
	if isMet && len(evidence) == 0 {
		t.Errorf("%d, %s: yes, without evidence", number, row.Cells[1])
	}
	return isMet
}

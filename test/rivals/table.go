// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// A Row is a public issue of another project and the tests of ours that would have caught it.
type Row struct {
	Issue Issue `json:"issue"`
	// What went wrong, in one line of our own words.
	What string `json:"what"`
	// Reason says why our design rules the defect out, where it does. The tests show that.
	Reason string `json:"reason,omitempty"`
	Tests  []Test `json:"tests"`
}

// An Issue is an issue or a pull request on GitHub, as OWNER/NAME#NUMBER.
type Issue struct {
	Repository string
	Number     int
}

var issue = regexp.MustCompile(`^([A-Za-z0-9-]+/[A-Za-z0-9._-]+)#([1-9][0-9]*)$`)

// UnmarshalText reads OWNER/NAME#NUMBER.
func (i *Issue) UnmarshalText(text []byte) error {
	parts := issue.FindSubmatch(text)
	if parts == nil {
		return fmt.Errorf("%q is not OWNER/NAME#NUMBER", text)
	}
	number, err := strconv.Atoi(string(parts[2]))
	*i = Issue{string(parts[1]), number}
	return err
}

func (i Issue) String() string { return fmt.Sprintf("%s#%d", i.Repository, i.Number) }

// URL is the address of the thread. GitHub redirects it for a pull request.
func (i Issue) URL() string {
	return fmt.Sprintf("https://github.com/%s/issues/%d", i.Repository, i.Number)
}

// A Test is a test of this repository, as FOLDER.NAME or FOLDER.NAME/SUBTEST. Spaces in the name of a
// subtest are written as such.
type Test struct {
	Folder, Function, Subtest string
}

var test = regexp.MustCompile(`^([\w-]+(?:/[\w-]+)*)\.((?:Test|Fuzz)\w+)(?:/(.+))?$`)

// UnmarshalText reads FOLDER.NAME/SUBTEST.
func (t *Test) UnmarshalText(text []byte) error {
	parts := test.FindSubmatch(text)
	if parts == nil {
		return fmt.Errorf("%q is not FOLDER.TESTNAME or FOLDER.TESTNAME/SUBTEST", text)
	}
	*t = Test{string(parts[1]), string(parts[2]), string(parts[3])}
	return nil
}

func (t Test) String() string { return t.Folder + "." + t.name() }

// name is the test's name with its subtest, as it is written.
func (t Test) name() string {
	if t.Subtest == "" {
		return t.Function
	}
	return t.Function + "/" + t.Subtest
}

// reported is the name under which go test reports the test.
func (t Test) reported() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, t.name())
}

// mostWords is how long the line about an issue may be, in bytes.
const mostWords = 200

// Parse reads a table strictly. An error names the row.
func Parse(source []byte) ([]Row, error) {
	document, err := yaml.YAMLToJSONStrict(source)
	if err != nil {
		return nil, fmt.Errorf("the table is not YAML: %w", err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(document, &raw); err != nil {
		return nil, fmt.Errorf("the table is not a list of rows: %w", err)
	}
	rows := make([]Row, len(raw))
	first := map[Issue]int{}
	for i, row := range raw {
		decoder := json.NewDecoder(bytes.NewReader(row))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&rows[i]); err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
		if err := rows[i].check(); err != nil {
			return nil, fmt.Errorf("row %d, %s: %w", i+1, rows[i].Issue, err)
		}
		if earlier, isKnown := first[rows[i].Issue]; isKnown {
			return nil, fmt.Errorf("row %d, %s: row %d is about the same issue", i+1, rows[i].Issue, earlier)
		}
		first[rows[i].Issue] = i + 1
	}
	return rows, nil
}

func (r Row) check() error {
	if r.Issue == (Issue{}) {
		return errors.New("no issue")
	}
	for field, text := range map[string]string{"what": r.What, "reason": r.Reason} {
		switch {
		case text == "" && field == "what":
			return errors.New("nothing says what went wrong")
		case strings.ContainsAny(text, "\n|`"):
			return fmt.Errorf("%s has a line break, a bar or a backquote, and is a cell of a table", field)
		case len(text) > mostWords:
			return fmt.Errorf("%s has %d bytes, and %d are allowed", field, len(text), mostWords)
		}
	}
	if len(r.Tests) == 0 {
		return errors.New("no tests")
	}
	for i, t := range r.Tests {
		if slices.Contains(r.Tests[:i], t) {
			return fmt.Errorf("%s is named twice", t)
		}
	}
	return nil
}

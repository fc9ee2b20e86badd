// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fromvpa

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// YAML is the scaler as a document of YAML, below comments about the conversion of each field.
func (i Import) YAML() (string, error) {
	var out strings.Builder
	comment(&out, "", "VerticalPodAutoscaler "+i.Namespace+"/"+i.Name)
	if i.Scaler == nil {
		comment(&out, "", "skipped: "+i.Skipped)
		return out.String(), nil
	}
	for _, note := range i.Notes {
		value := ""
		if note.Value != "" {
			value = ": " + shortened(note.Value)
		}
		comment(&out, "", note.Field+value)
		comment(&out, "  ", "-> "+note.Result)
	}
	if len(i.Doubts) > 0 {
		comment(&out, "", "updateMode is Recommend, because not all fields could be imported: see "+strings.Join(i.Doubts, ", "))
	}
	text, err := yaml.Marshal(i.Scaler)
	if err != nil {
		return "", fmt.Errorf("encoding VerticalScaler %s/%s: %w", i.Namespace, i.Name, err)
	}
	out.Write(text)
	return out.String(), nil
}

// comment writes text as a comment of one line.
func comment(out *strings.Builder, indent, text string) {
	out.WriteString("# " + indent + printable(text) + "\n")
}

// maxValue is the number of bytes of a value that a comment shows.
const maxValue = 160

func shortened(value string) string {
	if len(value) > maxValue {
		return strings.ToValidUTF8(value[:maxValue], "") + "..."
	}
	return value
}

// printable is text without characters that could end a comment: names and values come from users.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
}

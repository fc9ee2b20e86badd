// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// History are the last changes of a scaler.
type History struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Changes are the last changes, newest first. The status keeps 10.
	Changes []Change `json:"changes"`
}

// Change is one decision.
type Change struct {
	Cause `json:",inline"`
	Time  metav1.Time `json:"time"`
	// Change is what was changed, such as "app cpu 500m->310m; log memory 64Mi->80Mi".
	Change string `json:"change"`
}

// HistoryOf reads the history of a scaler.
func HistoryOf(s *v1beta1.VerticalScaler) History {
	out := History{Namespace: s.Namespace, Name: s.Name, Changes: []Change{}}
	for _, h := range s.Status.History {
		code, change, ok := strings.Cut(h.Message, ": ")
		if !ok {
			code, change = "", h.Message
		}
		cause, _ := CauseOf(code)
		out.Changes = append(out.Changes, Change{Cause: cause, Time: h.Time, Change: change})
	}
	return out
}

// WriteJSON writes the history as JSON.
func (h History) WriteJSON(w io.Writer) error { return writeJSON(w, h) }

// WriteYAML writes it as YAML.
func (h History) WriteYAML(w io.Writer) error { return writeYAML(w, h) }

// WriteText writes it as a table. Ages are relative to now.
func (h History) WriteText(w io.Writer, now time.Time) error {
	if len(h.Changes) == 0 {
		_, err := io.WriteString(w, "VerticalScaler "+h.Namespace+"/"+h.Name+" has changed nothing yet.\n")
		return err
	}
	lines := [][]string{}
	for _, c := range h.Changes {
		lines = append(lines, []string{age(now, c.Time), c.Cause.Cause, c.Change})
	}
	var b strings.Builder
	table(&b, []string{"AGE", "CAUSE", "CHANGE"}, lines, &[]int{})
	_, err := io.WriteString(w, b.String())
	return err
}

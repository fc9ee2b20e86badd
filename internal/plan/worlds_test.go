// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// TestFoundWorlds brings worlds to rest in which an earlier or mutated planner breaks a promise.
func TestFoundWorlds(t *testing.T) {
	paths, err := filepath.Glob("testdata/worlds/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal(len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := decodedWorld(t, text)
			w.bringToRest(t)
		})
	}
}

// TestWorldsAreKeptWhole encodes and decodes worlds: nothing is lost.
func TestWorldsAreKeptWhole(t *testing.T) {
	for seed := uint64(0); seed < 150; seed += uint64(stride()) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		w.surround(r)
		for range epochs {
			if decoded := decodedWorld(t, w.encoded(t)); !reflect.DeepEqual(w, decoded) {
				t.Fatalf("seed %d: the world is\n%s\nand decoded\n%s", seed, w.encoded(t), decoded.encoded(t))
			}
			w.bringToRest(t)
			w.change(r)
		}
	}
}

// keepIfFailed writes the world to a file if the test has failed.
func keepIfFailed(t *testing.T, world []byte) {
	t.Helper()
	if !t.Failed() {
		return
	}
	path := filepath.Join(os.TempDir(), filepath.Base(t.Name())+".json")
	if err := os.WriteFile(path, world, 0o600); err != nil {
		t.Error(err)
	}
	t.Logf("To keep the world of this failure as a test: cp '%s' internal/plan/testdata/worlds/NAME.json", path)
}

// format leaves out fields that are zero, and accepts no field that does not exist.
var format = json.JoinOptions(
	json.OmitZeroStructFields(true), json.Deterministic(true), json.RejectUnknownMembers(true), jsonv1.FormatDurationAsNano(true), jsontext.WithIndent(" "),
)

// An object without other objects is one line of a file.
var innermost, lineBreak = regexp.MustCompile(`\{[^{}\[\]]*\}`), regexp.MustCompile(`\n *`)

// worldText is a world as it is encoded.
type worldText struct {
	Situation plan.Situation
	Policy    plan.Policy
	surroundings
}

func (w world) encoded(t *testing.T) []byte {
	t.Helper()
	w.policy.Windows = nil
	text, err := json.Marshal(worldText{w.situation, w.policy, w.surroundings}, format)
	if err != nil {
		t.Fatal(err)
	}
	text = innermost.ReplaceAllFunc(text, func(object []byte) []byte { return lineBreak.ReplaceAll(object, []byte(" ")) })
	return append(text, '\n')
}

func decodedWorld(t *testing.T, text []byte) world {
	t.Helper()
	var decoded worldText
	must.Succeed(t, json.Unmarshal(text, &decoded, format))
	w := world{decoded.Situation, decoded.Policy, decoded.surroundings}
	w.parseWindows()
	return w
}

// parseWindows gives the policy the windows.
func (w *world) parseWindows() {
	w.policy.Windows = nil
	for _, spec := range w.Windows {
		parsed, err := window.Parse(spec)
		if err != nil {
			panic(err)
		}
		w.policy.Windows = append(w.policy.Windows, parsed)
	}
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build planted

package planted

const verticalscaler = "./controllers/verticalscaler"

// faultRuns are the one-step runs of a scenario: oracles must find the bug.
func faultRuns(scenario string) tests {
	return tests{pkg: "./test/onestep", run: "^TestFaults$/^" + scenario + "$"}
}

// bugs are mistakes that operators of this kind have made.
var bugs = map[string]bug{
	"a second write after a resize": {
		file: "controllers/verticalscaler/resize.go",
		from: "\tr.countDone(client.ObjectKeyFromObject(s.scaler), \"resize\", metrics.Resized)\n",
		to: "\tr.countDone(client.ObjectKeyFromObject(s.scaler), \"resize\", metrics.Resized)\n" +
			"\t_ = r.Client.SubResource(\"resize\").Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(\"{}\")))\n",
		caughtBy: []tests{{pkg: verticalscaler, run: "UseNoBudget|WaitForACheckpoint"}, faultRuns("up")},
	},
	"a resize without the identity of the pod": {
		file:     "controllers/verticalscaler/resize.go",
		from:     "body.Metadata.UID, body.Metadata.ResourceVersion = step.UID, step.ResourceVersion\n",
		to:       "\n",
		caughtBy: []tests{{pkg: verticalscaler, run: "TestResizePatch"}},
	},
	"a status is written without a change": {
		file:     "controllers/verticalscaler/status.go",
		from:     "\tif scaler.EqualStatus(s.scaler.Status, s.status) {\n\t\treturn nil\n\t}\n",
		to:       "",
		caughtBy: []tests{faultRuns("up")},
	},
	"usage that is missing lowers requests": {
		file:     "internal/plan/model/situation.go",
		from:     "if s.MissingUsage == \"\" {",
		to:       "if true {",
		caughtBy: []tests{{pkg: "./internal/plan", run: "FuzzNext"}},
	},
	"a change that has no generation is dropped": {
		file:     "controllers/verticalscaler/triggers.go",
		from:     " || scaler.RecordedClaim(before) != scaler.RecordedClaim(after) ||\n",
		to:       " ||\n",
		caughtBy: []tests{{pkg: verticalscaler, run: "InAnyOrder"}},
	},
	"an eviction is not remembered": {
		file:     "controllers/verticalscaler/evict.go",
		from:     "func(what *remembered) { what.evicted, what.at = true, s.now }",
		to:       "func(*remembered) {}",
		caughtBy: []tests{{pkg: verticalscaler, run: "AnEvictionIsAskedForOnce"}},
	},
	"a claim on another namespace is indexed": {
		file:     "internal/scaler/claim.go",
		from:     "return found && namespace == s.Namespace && name",
		to:       "return found && namespace != \"\" && name",
		caughtBy: []tests{{pkg: verticalscaler, run: "OnlyOwnClaims"}, {pkg: "./internal/scaler", run: "OnTheOwnNamespace"}},
	},
	"a namespace may take all changes": {
		file:     "internal/change/budget/line.go",
		from:     "if a.belowShare != b.belowShare && a.want.Class == b.want.Class {",
		to:       "if false {",
		caughtBy: []tests{{pkg: "./internal/change/budget", run: "KeepOthersWaiting"}},
	},
	"a namespace may take the whole reserve": {
		file:     "internal/change/budget/limits.go",
		from:     "return own < size-all",
		to:       "return all < size",
		caughtBy: []tests{{pkg: "./internal/change/budget", run: "UseUpTheReserve"}},
	},
	"a slot waits for a scaler that does not come": {
		file:     "internal/change/budget/budget.go",
		from:     "if waited < b.delay.patience() {",
		to:       "if waited < time.Hour {",
		caughtBy: []tests{{pkg: "./internal/change/budget", run: "UnusedReservation"}},
	},
}

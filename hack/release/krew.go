// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/krew/pkg/constants"
	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

// manifest is what krew calls the plugin. The file must have this name.
const manifest = "vscaler"

// writeManifest writes the manifest for krew, with the archives' checksums.
func (r release) writeManifest(sums map[platform]string) error {
	p := index.Plugin{
		TypeMeta:   metav1.TypeMeta{APIVersion: constants.CurrentAPIVersion, Kind: constants.PluginKind},
		ObjectMeta: metav1.ObjectMeta{Name: manifest},
		Spec: index.PluginSpec{
			Version:          r.version,
			Homepage:         repository,
			ShortDescription: "Show and explain the sizing of Deployments",
			Description: "Shows what VerticalScaler does to the CPU and memory of Deployments, and why: a list of all scalers, an\n" +
				"explanation of each number, a live view in the terminal, a local dashboard, and a backtest with recorded usage.\n",
			Caveats: "The cluster needs the VerticalScaler operator: " + repository + "\n" +
				"For completions, put kubectl_complete-vscaler of the release into your PATH.\n",
		},
	}
	for _, platform := range r.platforms {
		p.Spec.Platforms = append(p.Spec.Platforms, index.Platform{
			URI:      r.url(platform.archive()),
			Sha256:   sums[platform],
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"os": platform.os, "arch": platform.arch}},
			Files:    []index.FileOperation{{From: platform.program(), To: "."}, {From: "LICENSE", To: "."}},
			Bin:      platform.program(),
		})
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return r.save(manifest+".yaml", text)
}

// url is where users find a file of this release.
func (r release) url(name string) string {
	return repository + "/releases/download/" + r.version + "/" + name
}

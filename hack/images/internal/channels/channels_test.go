// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const packageV0 = `---
defaultChannel: stable-v0
name: web
schema: olm.package
`

func TestPlain(t *testing.T) {
	cases := map[string]struct{ catalog, want string }{
		"one major version only loses its number": {
			catalog: packageV0 + `---
entries:
- name: web.v0.1.0
- name: web.v0.2.0
  replaces: web.v0.1.0
name: stable-v0
package: web
schema: olm.channel
`,
			want: `---
defaultChannel: stable
name: web
schema: olm.package
---
entries:
- name: web.v0.1.0
- name: web.v0.2.0
  replaces: web.v0.1.0
name: stable
package: web
schema: olm.channel
`,
		},
		"the first target of a major version replaces the last of the one before": {
			catalog: strings.ReplaceAll(packageV0, "v0", "v10") + `---
entries:
- name: web.v10.0.0
- name: web.v10.0.1
  skips: [web.v10.0.0]
- name: web.v10.1.0
  replaces: web.v10.0.1
  skips: [web.v10.0.0]
name: stable-v10
package: web
schema: olm.channel
---
entries:
- name: web.v9.0.0
- name: web.v9.1.0
  replaces: web.v9.0.0
name: stable-v9
package: web
schema: olm.channel
`,
			want: `---
defaultChannel: stable
name: web
schema: olm.package
---
entries:
- name: web.v9.0.0
- name: web.v9.1.0
  replaces: web.v9.0.0
- name: web.v10.0.0
- name: web.v10.0.1
  replaces: web.v9.1.0
  skips:
  - web.v10.0.0
- name: web.v10.1.0
  replaces: web.v10.0.1
  skips:
  - web.v10.0.0
name: stable
package: web
schema: olm.channel
`,
		},
		"bundles stay as they are": {
			catalog: packageV0 + "---\nschema: olm.bundle\nname: b\nx: |\n  ---\n  y  \n",
			want: "---\ndefaultChannel: stable\nname: web\nschema: olm.package\n" +
				"---\nschema: olm.bundle\nname: b\nx: |\n  ---\n  y  \n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Plain([]byte(tc.catalog))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("Plain() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlainRefuses(t *testing.T) {
	channel := func(name, entries string) string {
		return packageV0 + "---\nschema: olm.channel\npackage: web\nname: " + name + "\nentries:\n" + entries
	}
	cases := map[string]struct{ catalog, want string }{
		"channels of minor versions": {
			channel("stable-v0.1", "- {name: a}\n"), "generateMajorChannels",
		},
		"what it would lose": {
			channel("stable-v0", "- {name: a, skipRange: '<1.0.0'}\n"), "skipRange",
		},
		"two heads": {
			channel("stable-v0", "- {name: a}\n- {name: b}\n"), "has 2 heads",
		},
		"an edge into nothing": {
			channel("stable-v0", "- {name: a, replaces: b}\n"), "which is not in it",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Plain([]byte(tc.catalog))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Plain() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

{{- /* The page docs/api.md: the kinds first, then the types that they are made of, by name. */ -}}

{{- define "gvList" -}}
<!-- Generated from the Go types in api/ by "make generate": change those, not this page. -->
# API reference
{{ range . }}
## {{ .GroupVersionString }}

{{ trim .Doc }}
{{ range .SortedKinds }}
- [{{ . }}](#{{ lower . }})
{{- end }}
{{ $gv := . }}

{{- range .SortedKinds }}{{ template "type" $gv.TypeForKind . }}{{ end }}
{{- /* PolicyRules is embedded: its fields are shown where they are. */}}
{{- range .SortedTypes }}{{ if not (or .GVK (eq .Name "PolicyRules")) }}{{ template "type" . }}{{ end }}{{ end }}
{{- end }}
{{- end -}}

{{- define "type" }}
{{- if markdownShouldRenderType . }}
### {{ .Name }}

{{ .Doc }}
{{- if and .Validation (not .EnumValues) }}

Validation:
{{ range .Validation }}
- {{ . }}
{{- end }}
{{- end }}
{{- if .References }}

Used by
{{- $first := true }}
{{- range .SortedReferences }}{{ if ne .Name "PolicyRules" }}{{ if not $first }},{{ end }}{{ $first = false }} {{ markdownRenderTypeLink . }}{{ end }}{{ end }}.
{{- end }}
{{- if .Members }}

| Field | Type | Description | Default | Validation |
|---|---|---|---|---|
{{- if .GVK }}
| `apiVersion` | string | `{{ .GVK.Group }}/{{ .GVK.Version }}` | | |
| `kind` | string | `{{ .GVK.Kind }}` | | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ if ne .Name "metadata" }}{{ markdownRenderFieldDoc .Doc }}{{ end }} | {{ with .Default }}`{{ . }}`{{ end }} | {{ template "rules" .Validation }} |
{{- end }}
{{- end }}
{{- if .EnumValues }}

| Value | Description |
|---|---|
{{- range .EnumValues }}
| `{{ .Name }}` | {{ markdownRenderFieldDoc (trim .Doc) }} |
{{- end }}
{{- end }}
{{ end }}
{{- end -}}

{{- /* Fields are optional unless it says otherwise. */ -}}
{{- define "rules" -}}
{{- $first := true -}}
{{- range . -}}
{{- if not (or (hasPrefix "Optional" .) (hasPrefix "XIntOrString" .)) -}}
{{- if not $first }}<br />{{ end }}{{ $first = false -}}
{{- if hasPrefix "Required" . }}Required{{ else }}{{ markdownRenderFieldDoc . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup is the file format of "kubectl vscaler backup": a header and objects, as a stream of YAML documents.
//
// The promises:
//
//   - The same objects give the same bytes, in whatever order they come.
//   - Read accepts a whole file or nothing. A file that was cut off or edited, and one of a version that is not
//     known, is refused.
//   - A file holds no Secrets, and nothing that is only true in the cluster it comes from: no UIDs, no conditions, no
//     decisions, and no original values of a pod template.
package backup

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

const (
	// group and version are those of the format.
	group   = "backup.verticalscaler.io"
	version = "v1"
	// kind is the kind of the header.
	kind = "Backup"
	// mostBytes bounds a file: about 100,000 scalers.
	mostBytes = 1 << 30

	separator = "---\n"
)

// header is the first document.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Objects is how many documents follow.
	Objects int `json:"objects"`
	// SHA256 is the checksum of all bytes after the header's separator.
	SHA256 string `json:"sha256"`
}

// Backup is what a file holds.
type Backup struct {
	ClusterPolicies   []v1beta1.ClusterScalingPolicy
	Policies          []v1beta1.ScalingPolicy
	ScaledDeployments []v1beta1.ScaledDeployment
	Scalers           []Scaler
}

// Scaler is a scaler and what was learned for it.
type Scaler struct {
	v1beta1.VerticalScaler

	// Checkpoint is nil if nothing was learned yet.
	Checkpoint *v1beta1.VerticalScalerCheckpoint
}

// Key is the name of the scaler.
func (s *Scaler) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// Of is the backup of objects as the API server has them. Scalers that are being deleted are left out, and so are
// checkpoints that are not of their scaler and its Deployment.
func Of(clusterPolicies []v1beta1.ClusterScalingPolicy, policies []v1beta1.ScalingPolicy, owners []v1beta1.ScaledDeployment,
	scalers []v1beta1.VerticalScaler, checkpoints []v1beta1.VerticalScalerCheckpoint,
) Backup {
	var b Backup
	for _, p := range clusterPolicies {
		if p.DeletionTimestamp == nil {
			b.ClusterPolicies = append(b.ClusterPolicies, v1beta1.ClusterScalingPolicy{TypeMeta: typed(v1beta1.ClusterScalingPolicyKind), ObjectMeta: meta(p.ObjectMeta), Spec: p.Spec})
		}
	}
	for _, p := range policies {
		if p.DeletionTimestamp == nil {
			b.Policies = append(b.Policies, v1beta1.ScalingPolicy{TypeMeta: typed(v1beta1.ScalingPolicyKind), ObjectMeta: meta(p.ObjectMeta), Spec: p.Spec})
		}
	}
	for _, o := range owners {
		if o.DeletionTimestamp == nil {
			b.ScaledDeployments = append(b.ScaledDeployments, v1beta1.ScaledDeployment{TypeMeta: typed("ScaledDeployment"), ObjectMeta: meta(o.ObjectMeta), Spec: o.Spec})
		}
	}
	learned := map[types.NamespacedName]*v1beta1.VerticalScalerCheckpoint{}
	for i, c := range checkpoints {
		learned[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = &checkpoints[i]
	}
	for _, s := range scalers {
		if s.DeletionTimestamp != nil {
			continue
		}
		out := Scaler{VerticalScaler: v1beta1.VerticalScaler{TypeMeta: typed("VerticalScaler"), ObjectMeta: meta(s.ObjectMeta), Spec: s.Spec}}
		out.OwnerReferences = controllerOf(&s)
		out.Status = v1beta1.VerticalScalerStatus{Recommendation: s.Status.Recommendation, RevertedChanges: s.Status.RevertedChanges}
		if c := learned[out.Key()]; c != nil && metav1.IsControlledBy(c, &s) && c.Spec.DeploymentName == s.Spec.DeploymentName {
			out.Checkpoint = &v1beta1.VerticalScalerCheckpoint{TypeMeta: typed("VerticalScalerCheckpoint"), ObjectMeta: meta(c.ObjectMeta), Spec: c.Spec}
		}
		b.Scalers = append(b.Scalers, out)
	}
	b.sort()
	return b
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: kind}
}

// lastApplied is where "kubectl apply" keeps a copy of an object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// meta is what another cluster needs of the metadata of an object.
func meta(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels}
	for key, value := range m.Annotations {
		if key != lastApplied && key != v1beta1.RestoredAnnotation {
			metav1.SetMetaDataAnnotation(&out, key, value)
		}
	}
	return out
}

// controllerOf names what controls a scaler. Its UID would be another one in another cluster.
func controllerOf(s *v1beta1.VerticalScaler) []metav1.OwnerReference {
	c := metav1.GetControllerOf(s)
	if c == nil {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, Controller: new(true)}}
}

// sort puts all objects in order.
func (b *Backup) sort() {
	byName := func(a, b metav1.ObjectMeta) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}
	slices.SortFunc(b.ClusterPolicies, func(x, y v1beta1.ClusterScalingPolicy) int { return byName(x.ObjectMeta, y.ObjectMeta) })
	slices.SortFunc(b.Policies, func(x, y v1beta1.ScalingPolicy) int { return byName(x.ObjectMeta, y.ObjectMeta) })
	slices.SortFunc(b.ScaledDeployments, func(x, y v1beta1.ScaledDeployment) int { return byName(x.ObjectMeta, y.ObjectMeta) })
	slices.SortFunc(b.Scalers, func(x, y Scaler) int { return byName(x.ObjectMeta, y.ObjectMeta) })
}

// objects are all objects in the order of the file.
func (b *Backup) objects() (all []any) {
	for i := range b.ClusterPolicies {
		all = append(all, &b.ClusterPolicies[i])
	}
	for i := range b.Policies {
		all = append(all, &b.Policies[i])
	}
	for i := range b.ScaledDeployments {
		all = append(all, &b.ScaledDeployments[i])
	}
	for i := range b.Scalers {
		all = append(all, &b.Scalers[i].VerticalScaler)
		if c := b.Scalers[i].Checkpoint; c != nil {
			all = append(all, c)
		}
	}
	return all
}

// Write writes the file.
func (b *Backup) Write(w io.Writer) error {
	var body bytes.Buffer
	objects := b.objects()
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encoding object %d: %w", i+1, err)
		}
		if i > 0 {
			body.WriteString(separator)
		}
		body.Write(text)
	}
	first, err := yaml.Marshal(header{APIVersion: group + "/" + version, Kind: kind, Objects: len(objects), SHA256: checksum(body.Bytes())})
	if err != nil {
		return fmt.Errorf("encoding the header: %w", err)
	}
	_, err = w.Write(slices.Concat([]byte("# A backup of VerticalScaler. To use it: kubectl vscaler restore -f FILE\n"), first, []byte(separator), body.Bytes()))
	return err
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Read reads a whole file. It decodes each history as well.
func Read(r io.Reader) (Backup, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	switch {
	case err != nil:
		return Backup{}, err
	case len(data) > mostBytes:
		return Backup{}, errors.New("the file is larger than 1 GiB")
	}
	first, body, _ := bytes.Cut(data, []byte("\n"+separator))
	var h header
	if err := yaml.Unmarshal(first, &h); err != nil {
		return Backup{}, fmt.Errorf("this is not a backup: %w", err)
	}
	switch its, theVersion, _ := strings.Cut(h.APIVersion, "/"); {
	case its != group || h.Kind != kind:
		return Backup{}, errors.New(`this is not a backup: its first document is not one that "kubectl vscaler backup" writes`)
	case theVersion != version:
		return Backup{}, fmt.Errorf("the backup has version %q, and this plugin knows %q: use the plugin of the release that wrote it, or a newer one", theVersion, version)
	case checksum(body) != h.SHA256:
		return Backup{}, errors.New("the checksum is wrong: the file was cut off or edited. Nothing of it is used")
	}
	if err := yaml.UnmarshalStrict(first, &h); err != nil {
		return Backup{}, fmt.Errorf("the header: %w", err)
	}
	var documents [][]byte
	if len(body) > 0 {
		documents = bytes.Split(body, []byte("\n"+separator))
	}
	if len(documents) != h.Objects {
		return Backup{}, fmt.Errorf("the header announces %d objects, and there are %d", h.Objects, len(documents))
	}
	var b Backup
	for i, document := range documents {
		if err := b.add(document); err != nil {
			return Backup{}, fmt.Errorf("object %d: %w", i+1, err)
		}
	}
	return b, nil
}

// add adds one document.
func (b *Backup) add(document []byte) error {
	var its metav1.TypeMeta
	if err := yaml.Unmarshal(document, &its); err != nil {
		return err
	}
	if its.APIVersion != v1beta1.GroupVersion.String() {
		return fmt.Errorf("apiVersion %q is not %s", its.APIVersion, v1beta1.GroupVersion)
	}
	switch its.Kind {
	case v1beta1.ClusterScalingPolicyKind:
		return appended(document, &b.ClusterPolicies)
	case v1beta1.ScalingPolicyKind:
		return appended(document, &b.Policies)
	case "ScaledDeployment":
		return appended(document, &b.ScaledDeployments)
	case "VerticalScaler":
		var s v1beta1.VerticalScaler
		if err := yaml.UnmarshalStrict(document, &s); err != nil {
			return err
		}
		b.Scalers = append(b.Scalers, Scaler{VerticalScaler: s})
		return nil
	case "VerticalScalerCheckpoint":
		var c v1beta1.VerticalScalerCheckpoint
		if err := yaml.UnmarshalStrict(document, &c); err != nil {
			return err
		}
		return b.learned(&c)
	}
	return fmt.Errorf("kind %q does not belong into a backup", its.Kind)
}

func appended[T any](document []byte, to *[]T) error {
	var object T
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		return err
	}
	*to = append(*to, object)
	return nil
}

// learned adds a checkpoint to its scaler, which is the last one that was read.
func (b *Backup) learned(c *v1beta1.VerticalScalerCheckpoint) error {
	name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	if len(b.Scalers) == 0 {
		return fmt.Errorf("the checkpoint %s has no scaler", name)
	}
	s := &b.Scalers[len(b.Scalers)-1]
	if s.Key() != name || s.Spec.DeploymentName != c.Spec.DeploymentName {
		return fmt.Errorf("the checkpoint %s is not of the scaler before it", name)
	}
	for _, container := range c.Spec.Containers {
		if _, err := history.Decode(container.Data); err != nil {
			return fmt.Errorf("the history of container %q of %s: %w", container.ContainerName, name, err)
		}
	}
	s.Checkpoint = c
	return nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/check"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// supportBundle has the sources of an archive.
type supportBundle struct {
	cluster   *kube.Cluster
	client    client.Client
	pods      corev1client.PodsGetter
	namespace string
	logLines  int64
	now       time.Time

	files   []bundledFile
	missing []string
	sized   map[string]bool // Deployments and pods, as KIND/NAME
}

type bundledFile struct {
	name    string
	content []byte
}

// New is the command support-bundle.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	output, lines := "", int64(5000)
	c := cli.Command(&cobra.Command{Use: "support-bundle", Short: "Write an archive for a bug report", Args: cli.NoArguments}, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if lines < 0 {
			return cli.Usagef("--log-lines must not be negative")
		}
		b, err := newBundle(cluster, lines)
		if err != nil {
			return err
		}
		if err := b.collect(ctx); err != nil {
			return err
		}
		return b.save(streams, cmp.Or(output, "vscaler-support-"+b.namespace+".tar.gz"))
	})
	c.Flags().StringVarP(&output, "output", "o", "", "The file to write; - is the standard output. An existing file is not overwritten. (default vscaler-support-NAMESPACE.tar.gz)")
	c.Flags().Int64Var(&lines, "log-lines", lines, "How many lines of each pod of the operator are included; 0 for none.")
	return c
}

func newBundle(cluster *kube.Cluster, logLines int64) (*supportBundle, error) {
	namespace, c, err := cluster.OpenNamespace(false)
	if err != nil {
		return nil, err
	}
	config, err := cluster.Config()
	if err != nil {
		return nil, err
	}
	pods, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &supportBundle{cluster: cluster, client: c, pods: pods, namespace: namespace, logLines: logLines, sized: map[string]bool{}}, nil
}

// collect reads everything. Only the scalers are required.
func (b *supportBundle) collect(ctx context.Context) error {
	scalers, err := kube.Scalers(ctx, b.client, client.InNamespace(b.namespace))
	if err != nil {
		return err
	}
	b.now = b.cluster.Now()
	b.checks(ctx)
	operators, err := b.cluster.Operators(ctx, b.client, b.namespace)
	b.note("whether the operator runs", err)
	for i := range scalers {
		b.scaler(ctx, &scalers[i], operators)
	}
	b.objects(ctx, v1beta1.GroupVersion.WithKind(string(kube.OwnerKind)))
	b.policies(ctx, operators)
	b.objects(ctx, kube.VPAKind)
	for _, kind := range kube.Bundled {
		b.objects(ctx, kind)
	}
	operator := b.cluster.OperatorNamespace()
	if found, ok := operators.For(b.namespace); ok {
		operator = found.Namespace
	}
	b.operator(ctx, operator)
	return nil
}

// note notes what could not be read.
func (b *supportBundle) note(what string, err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		b.missing = append(b.missing, masked(fmt.Sprintf("%s: %v", what, err)))
	}
}

func (b *supportBundle) add(name, content string) {
	b.files = append(b.files, bundledFile{name, []byte(content)})
}

// addObjects adds redacted objects as one file of YAML documents.
func (b *supportBundle) addObjects(name string, objects ...map[string]any) {
	var documents []string
	for _, object := range objects {
		fields := redactedObject(object)
		if fields == nil {
			continue
		}
		text, err := yaml.Marshal(fields)
		if err != nil {
			b.note(name, err)
			continue
		}
		documents = append(documents, string(text))
	}
	if len(documents) > 0 {
		b.add(name, strings.Join(documents, "---\n"))
	}
}

// typed is an object as decoded from JSON. Lists leave out the kinds of their items.
func (b *supportBundle) typed(object runtime.Object, kind schema.GroupVersionKind) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		b.note(kind.Kind, err)
		return nil
	}
	out["apiVersion"], out["kind"] = kind.GroupVersion().String(), kind.Kind
	return out
}

func (b *supportBundle) checks(ctx context.Context) {
	findings, err := check.Run(ctx, b.cluster, &past.Options{})
	if err == nil {
		var text strings.Builder
		if err = check.Write(&text, findings); err == nil {
			b.add("check.txt", masked(text.String()))
		}
	}
	b.note("the checks", err)
}

// scaler adds a scaler, its explanation, its Deployment, and the Deployment's pods.
func (b *supportBundle) scaler(ctx context.Context, s *v1beta1.VerticalScaler, operators explain.Operators) {
	folder := "scalers/" + s.Name + "/"
	b.addObjects(folder+"scaler.yaml", b.typed(s, v1beta1.GroupVersion.WithKind(string(kube.ScalerKind))))
	evidence := kube.EvidenceFor(ctx, b.client, s)
	evidence.Operators, evidence.Now = operators, b.now
	for _, missing := range evidence.Missing {
		b.missing = append(b.missing, masked(missing))
	}
	b.add(folder+"explanation.txt", masked(explain.Of(evidence).Text(b.now)))
	if evidence.Deployment == nil {
		return
	}
	b.addObjects(folder+"deployment.yaml", b.typed(evidence.Deployment, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: string(kube.DeploymentKind)}))
	b.sized[string(kube.DeploymentKind)+"/"+evidence.Deployment.Name] = true
	if selector, err := metav1.LabelSelectorAsSelector(evidence.Deployment.Spec.Selector); err == nil {
		for _, pod := range b.podsOf(ctx, folder+"pods.yaml", b.namespace, selector) {
			b.sized["Pod/"+pod.Name] = true
		}
	}
}

// policies adds the policies of the namespace and those of the cluster, and their explanations. Without rights on the latter,
// and from an operator that is older than policies, there are none.
func (b *supportBundle) policies(ctx context.Context, operators explain.Operators) {
	namespaced, err := kube.Objects(ctx, b.client, &v1beta1.ScalingPolicyList{}, client.InNamespace(b.namespace))
	b.note("ScalingPolicies", err)
	cluster, err := kube.Objects(ctx, b.client, &v1beta1.ClusterScalingPolicyList{})
	b.note("ClusterScalingPolicies", err)
	var objects []map[string]any
	for _, policy := range append(namespaced, cluster...) {
		p := explain.PolicyOf(policy)
		objects = append(objects, b.typed(policy, v1beta1.GroupVersion.WithKind(p.Kind)))
		explained := explain.OfPolicy(explain.PolicyEvidence{Policy: p, Operators: operators, Now: b.now})
		b.add("policies/"+p.Kind+"-"+policy.GetName()+".txt", masked(explained.Text(b.now)))
	}
	b.addObjects("policies.yaml", objects...)
}

func (b *supportBundle) podsOf(ctx context.Context, file, namespace string, selector labels.Selector) []corev1.Pod {
	var pods corev1.PodList
	err := b.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	b.note("the pods of "+file, err)
	var objects []map[string]any
	for i := range pods.Items {
		objects = append(objects, b.typed(&pods.Items[i], corev1.SchemeGroupVersion.WithKind("Pod")))
	}
	b.addObjects(file, objects...)
	return pods.Items
}

// objects adds the objects of a kind of the namespace: all, but of the events only those of what the
// bundle is about.
func (b *supportBundle) objects(ctx context.Context, kind schema.GroupVersionKind) {
	all, err := kube.Untyped(ctx, b.client, kind, client.InNamespace(b.namespace))
	b.note(kind.Kind+"s", err)
	var objects []map[string]any
	for _, item := range all {
		item.SetGroupVersionKind(kind)
		if kind.Kind == "Event" && !b.isAbout(item.Object) {
			continue
		}
		objects = append(objects, item.Object)
	}
	b.addObjects(strings.ToLower(kind.Kind)+"s.yaml", objects...)
}

// isAbout reports whether an event is about a scaler or what it sizes.
func (b *supportBundle) isAbout(event map[string]any) bool {
	kind, _, _ := unstructured.NestedString(event, "involvedObject", "kind")
	name, _, _ := unstructured.NestedString(event, "involvedObject", "name")
	return slices.Contains(ownKinds, kind) || b.sized[kind+"/"+name]
}

// operatorLabels are the labels of the operator's pods.
var operatorLabels = labels.Set{"app.kubernetes.io/name": "verticalscaler-operator", "app.kubernetes.io/component": "manager"}

// operator adds the pods of the operator and their logs.
func (b *supportBundle) operator(ctx context.Context, namespace string) {
	pods := b.podsOf(ctx, "operator/pods.yaml", namespace, operatorLabels.AsSelector())
	if len(pods) == 0 {
		b.missing = append(b.missing, "the operator: no pod is found in namespace "+namespace)
	}
	for _, pod := range pods {
		if b.logLines == 0 {
			return
		}
		options := &corev1.PodLogOptions{TailLines: ptr.To(b.logLines), Timestamps: true}
		text, err := b.pods.Pods(namespace).GetLogs(pod.Name, options).DoRaw(ctx)
		b.note("the log of "+pod.Name, err)
		if err == nil {
			b.add("operator/"+pod.Name+".log", masked(string(text)))
		}
	}
}

// save writes the archive. Only the user may read the file.
func (b *supportBundle) save(streams genericiooptions.IOStreams, output string) (err error) {
	archive, err := b.archive()
	if err != nil {
		return err
	}
	if output == "-" {
		_, err := streams.Out.Write(archive)
		return err
	}
	file, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(archive); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	for _, missing := range b.missing {
		fmt.Fprintf(streams.ErrOut, "warning: not included: %s\n", missing)
	}
	fmt.Fprintf(streams.Out, "%s written: %d files, %d KiB. Look through it before you pass it on.\n", output, len(b.files)+1, (len(archive)+1023)/1024)
	return nil
}

// archive is a compressed tar file with all files, and a README.txt.
func (b *supportBundle) archive() ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	files := tar.NewWriter(compressed)
	slices.SortFunc(b.files, func(x, y bundledFile) int { return strings.Compare(x.name, y.name) })
	for _, f := range append([]bundledFile{{"README.txt", []byte(b.readme())}}, b.files...) {
		header := &tar.Header{Name: "vscaler-support/" + f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: b.now}
		if err := files.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("writing %s: %w", f.name, err)
		}
		if _, err := files.Write(f.content); err != nil {
			return nil, fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	for _, closer := range []io.Closer{files, compressed} {
		if err := closer.Close(); err != nil {
			return nil, fmt.Errorf("closing the archive: %w", err)
		}
	}
	return out.Bytes(), nil
}

func (b *supportBundle) readme() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Namespace %s at %s, by version %s of the plugin.\n\nFiles:\n", b.namespace, b.now.UTC().Format(time.RFC3339), cli.Version)
	for _, f := range b.files {
		fmt.Fprintf(&text, "  %s\n", f.name)
	}
	if len(b.missing) > 0 {
		fmt.Fprintln(&text, "\nNot included:")
	}
	for _, missing := range b.missing {
		fmt.Fprintf(&text, "  %s\n", missing)
	}
	return text.String()
}

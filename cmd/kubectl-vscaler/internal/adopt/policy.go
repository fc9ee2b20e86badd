// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// resourceOf is the name of a policy as kubectl prints it.
func resourceOf(policy client.Object) string {
	return strings.ToLower(fleet.ViewOf(policy).Kind) + "." + v1beta1.GroupVersion.Group + "/" + policy.GetName()
}

// policyCopy is a copy of a policy.
func policyCopy(policy client.Object) client.Object {
	out, ok := policy.DeepCopyObject().(client.Object)
	if !ok {
		panic(fmt.Sprintf("a copy of a %T is not an object", policy)) // a mistake of this program
	}
	return out
}

// withSpecOf is a copy of a policy with the spec of another one of the same kind, and with its labels and annotations
// in addition.
func withSpecOf(existing, other client.Object) client.Object {
	out := policyCopy(existing)
	switch from := other.(type) {
	case *v1beta1.ScalingPolicy:
		if to, ok := out.(*v1beta1.ScalingPolicy); ok {
			to.Spec = *from.Spec.DeepCopy()
		}
	case *v1beta1.ClusterScalingPolicy:
		if to, ok := out.(*v1beta1.ClusterScalingPolicy); ok {
			to.Spec = *from.Spec.DeepCopy()
		}
	}
	out.SetLabels(merged(out.GetLabels(), other.GetLabels()))
	out.SetAnnotations(merged(out.GetAnnotations(), other.GetAnnotations()))
	return out
}

func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := map[string]string{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// isSame reports whether two versions of a policy are equal except for their status.
func isSame(a, b client.Object) bool {
	x, err := manifestOf(a)
	y, otherErr := manifestOf(b)
	return err == nil && otherErr == nil && reflect.DeepEqual(x["spec"], y["spec"]) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations())
}

// setDefaults sets those defaults of the schema that a preview needs.
func setDefaults(policy client.Object) {
	view := fleet.ViewOf(policy)
	view.Rules.Rollout.Start = cmp.Or(view.Rules.Rollout.Start, v1beta1.UpdateModeRecommend)
	view.Rules.Template.UpdatePolicy.UpdateMode = cmp.Or(view.Rules.Template.UpdatePolicy.UpdateMode, v1beta1.UpdateModeInPlace)
	if view.Cluster != nil {
		view.Cluster.SystemNamespaces = cmp.Or(view.Cluster.SystemNamespaces, v1beta1.SystemNamespacesExclude)
	}
}

// manifestOf is a policy as data, without what the API server sets.
func manifestOf(policy client.Object) (map[string]any, error) {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		return nil, err
	}
	out["apiVersion"], out["kind"] = v1beta1.GroupVersion.String(), fleet.ViewOf(policy).Kind
	delete(out, "status")
	without(out)
	return out, nil
}

// without removes what is empty.
func without(object map[string]any) {
	for name, value := range object {
		below, isObject := value.(map[string]any)
		if isObject {
			without(below)
		}
		if value == nil || isObject && len(below) == 0 {
			delete(object, name)
		}
	}
}

// readPolicy reads a manifest. It refuses fields that do not exist.
func readPolicy(text []byte) (client.Object, error) {
	document, err := onlyDocument(text)
	if err != nil {
		return nil, err
	}
	var about metav1.TypeMeta
	if err := yaml.Unmarshal(document, &about); err != nil {
		return nil, fmt.Errorf("this is not YAML: %w", err)
	}
	var policy client.Object
	switch about.Kind {
	case v1beta1.ScalingPolicyKind:
		policy = &v1beta1.ScalingPolicy{}
	case v1beta1.ClusterScalingPolicyKind:
		policy = &v1beta1.ClusterScalingPolicy{}
	default:
		return nil, fmt.Errorf("kind %q is not %s or %s", about.Kind, v1beta1.ScalingPolicyKind, v1beta1.ClusterScalingPolicyKind)
	}
	if about.APIVersion != v1beta1.GroupVersion.String() {
		return nil, fmt.Errorf("apiVersion %q is not %s", about.APIVersion, v1beta1.GroupVersion)
	}
	if err := yaml.UnmarshalStrict(document, policy); err != nil {
		return nil, fmt.Errorf("reading the %s: %w", about.Kind, err)
	}
	if policy.GetName() == "" {
		return nil, errors.New("metadata.name is missing")
	}
	if p, ok := policy.(*v1beta1.ClusterScalingPolicy); ok && len(p.Spec.NamespaceSelector.MatchLabels)+len(p.Spec.NamespaceSelector.MatchExpressions) == 0 {
		// An empty one is not sent, so the API server would say that the spec is missing.
		return nil, errors.New("spec.namespaceSelector must not be empty: select namespaces by their labels, or all of them with {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}")
	}
	policy.SetResourceVersion("")
	policy.SetUID("")
	policy.SetManagedFields(nil)
	policy.SetCreationTimestamp(metav1.Time{})
	*fleet.ViewOf(policy).Status = v1beta1.ScalingPolicyStatus{}
	return policy, nil
}

// onlyDocument is the only YAML document of a file.
func onlyDocument(text []byte) (only []byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("this is not YAML: %w", err)
		}
		switch {
		case content == nil: // only comments
		case only != nil:
			return nil, errors.New("there are several documents: adopt takes one policy at a time")
		default:
			only = document
		}
	}
	if only == nil {
		return nil, errors.New("there is no policy")
	}
	return only, nil
}

// policyFlags are the fields of a policy that have a flag.
type policyFlags struct {
	name              string
	namespaces        string
	selector          string
	excludeNamespaces []string
	exclude           []string
	rules             v1beta1.PolicyRules
	after             string
	maxConcurrent     string
	profile           profile.Profile
}

// updateModes are the update modes, from the least to the most that is changed.
var updateModes = []v1beta1.UpdateMode{v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInitial, v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRollout}

// policyFlagNames are the names of the flags.
var policyFlagNames = []string{"name", "namespaces", "selector", "exclude-namespace", "exclude", "mode", "start", "after", "max-concurrent", "profile"}

// add adds the flags to a command.
func (p *policyFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&p.name, "name", "fleet", "The name of the policy.")
	flags.StringVar(&p.namespaces, "namespaces", "", "Select the namespaces with these labels, such as sizing=auto, for a ClusterScalingPolicy. The key kubernetes.io/metadata.name alone selects all.")
	flags.StringVarP(&p.selector, "selector", "l", "", "Select only Deployments with these labels, such as tier=backend.")
	flags.StringSliceVar(&p.excludeNamespaces, "exclude-namespace", nil, "Exclude a namespace, by its name. Can be repeated.")
	flags.StringSliceVar(&p.exclude, "exclude", nil, "Exclude Deployments with this name. Can be repeated.")
	mode, start := &p.rules.Template.UpdatePolicy.UpdateMode, &p.rules.Rollout.Start
	*mode, *start = v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRecommend
	cli.AddChoice(c, mode, "mode", "", updateModes, "The update mode of promoted scalers")
	cli.AddChoice(c, start, "start", "", updateModes, "The update mode of new scalers, until they are promoted")
	flags.StringVar(&p.after, "after", "", "How much usage a scaler needs to be promoted, such as 7d or 36h. (default 7d)")
	flags.StringVar(&p.maxConcurrent, "max-concurrent", "", "How many of the scalers are verified at the same time after their promotion, in percent. (default 5%)")
	cli.AddChoice(c, &p.profile, "profile", "", profile.All(), "The profile of the scalers instead of Balanced")
}

// firstSet is the first of the flags that the user has set; empty for none.
func (p *policyFlags) firstSet(c *cobra.Command) string {
	for _, name := range policyFlagNames {
		if c.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// build is the policy that the flags describe.
func (p *policyFlags) build(c *cobra.Command, namespace string) (client.Object, error) {
	isSet := c.Flags().Changed
	rules, err := p.allRules(isSet)
	if err != nil {
		return nil, err
	}
	exclusions := v1beta1.DeploymentExclusions{Deployments: p.exclude}
	meta := metav1.ObjectMeta{Name: p.name}
	switch {
	case p.name == "":
		return nil, cli.Usagef("--name must not be empty")
	case isSet("namespaces"):
		out := &v1beta1.ClusterScalingPolicy{ObjectMeta: meta, Spec: v1beta1.ClusterScalingPolicySpec{PolicyRules: rules}}
		selector, err := selectorOf("namespaces", p.namespaces, "to select all namespaces, use kubernetes.io/metadata.name")
		if err != nil {
			return nil, err
		}
		out.Spec.NamespaceSelector = *selector
		if len(p.exclude)+len(p.excludeNamespaces) > 0 {
			out.Spec.Exclude = &v1beta1.ClusterExclusions{Namespaces: p.excludeNamespaces, DeploymentExclusions: exclusions}
		}
		return out, nil
	case len(p.excludeNamespaces) > 0:
		return nil, cli.Usagef("--exclude-namespace needs --namespaces: the policy of one namespace has no other")
	}
	meta.Namespace = namespace
	out := &v1beta1.ScalingPolicy{ObjectMeta: meta, Spec: v1beta1.ScalingPolicySpec{PolicyRules: rules}}
	if len(p.exclude) > 0 {
		out.Spec.Exclude = &exclusions
	}
	return out, nil
}

// allRules are the rules that both kinds of policies have. The API server sets the defaults of rules
// that the user does not set.
func (p *policyFlags) allRules(isSet func(string) bool) (rules v1beta1.PolicyRules, err error) {
	rules = p.rules
	if isSet("selector") {
		if rules.DeploymentSelector, err = selectorOf("selector", p.selector, "to select all Deployments, leave it out"); err != nil {
			return rules, err
		}
	}
	if p.profile != "" {
		rules.Template.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: v1beta1.RecommendationProfile(p.profile)}
	}
	if isSet("after") {
		after, err := timeSpan(p.after)
		if err != nil {
			return rules, cli.Usagef("--after: %w", err)
		}
		rules.Rollout.AfterSeconds = ptr.To(int32(after / time.Second))
	}
	if isSet("max-concurrent") {
		percent, err := strconv.ParseInt(strings.TrimSuffix(p.maxConcurrent, "%"), 10, 32)
		if err != nil || percent < 1 || percent > 100 {
			return rules, cli.Usagef("--max-concurrent %q is not a percentage from 1 to 100", p.maxConcurrent)
		}
		rules.Rollout.MaxConcurrentPercent = ptr.To(int32(percent))
	}
	return rules, nil
}

// selectorOf reads a label selector, which must not be empty.
func selectorOf(flag, text, instead string) (*metav1.LabelSelector, error) {
	requirements, err := labels.ParseToRequirements(text)
	switch {
	case err != nil:
		return nil, cli.Usagef("--%s: %w", flag, err)
	case len(requirements) == 0:
		return nil, cli.Usagef("--%s must not be empty: %s", flag, instead)
	}
	out := &metav1.LabelSelector{}
	for _, r := range requirements {
		operator, ok := operators[r.Operator()]
		switch values := r.Values().List(); {
		case r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals:
			metav1.AddLabelToSelector(out, r.Key(), values[0])
		case ok:
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: values})
		default:
			return nil, cli.Usagef("--%s: a policy knows no operator %q", flag, r.Operator())
		}
	}
	return out, nil
}

// operators maps the operators of kubectl to those of objects.
var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.In: metav1.LabelSelectorOpIn, selection.NotIn: metav1.LabelSelectorOpNotIn, selection.NotEquals: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// timeSpan reads a duration, which may be in days.
func timeSpan(text string) (time.Duration, error) {
	span, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration, such as 7d or 36h", text)
	}
	if time.Duration(span)/time.Second > math.MaxInt32 {
		return 0, fmt.Errorf("%q is out of range", text) // of a field of seconds
	}
	return time.Duration(span), nil
}

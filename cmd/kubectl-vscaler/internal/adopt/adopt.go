// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopt has the command that on-boards Deployments by a policy.
package adopt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/adoption"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// adopting are the flags of adopt.
type adopting struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster
	policy  policyFlags

	file   string
	output string
	dryRun cli.DryRun
	yes    bool
}

// New is the command adopt.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &adopting{IOStreams: streams, cluster: cluster, output: "table"}
	c := cli.Command("adopt", nil, o.run)
	o.policy.add(c)
	flags := c.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "A file with a ScalingPolicy or ClusterScalingPolicy; - is the standard input.")
	cli.AddChoice(c, &o.output, "output", "o", []string{"table", "json", "yaml", "manifest"}, "The format, where manifest prints the policy and writes nothing to the cluster")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Write the policy without asking.")
	cli.AddDryRun(c, &o.dryRun)
	return c
}

func (o *adopting) run(ctx context.Context, c *cobra.Command, _ []string) error {
	if o.file == "-" && !o.yes && o.writes() {
		return cli.Usagef("the standard input has the policy, so there is no terminal to ask: add --yes or --dry-run")
	}
	policy, err := o.read(c)
	if err != nil {
		return err
	}
	reader, err := o.cluster.Open()
	if err != nil {
		return err
	}
	return o.adopt(ctx, reader, policy)
}

// writes reports whether the policy is written in the end.
func (o *adopting) writes() bool { return o.dryRun == cli.NoDryRun && o.output != "manifest" }

// read is the policy of the file or of the flags.
func (o *adopting) read(c *cobra.Command) (client.Object, error) {
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, err
	}
	if o.file == "" {
		return o.policy.build(c, namespace)
	}
	if flag := o.policy.firstSet(c); flag != "" {
		return nil, cli.Usagef("--%s cannot be combined with --filename: set it in the file", flag)
	}
	text, name, err := o.text()
	if err != nil {
		return nil, err
	}
	policy, err := readPolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	isNamespaced := kube.Described(policy).Cluster == nil
	switch in := policy.GetNamespace(); {
	case isNamespaced && in == "":
		policy.SetNamespace(namespace)
	case isNamespaced && c.Flags().Changed("namespace") && in != namespace:
		return nil, cli.Usagef("%s: the policy is of namespace %s, and --namespace is %s", name, in, namespace)
	case !isNamespaced:
		policy.SetNamespace("")
	}
	return policy, nil
}

func (o *adopting) text() (text []byte, name string, err error) {
	if o.file == "-" {
		text, err = io.ReadAll(o.In)
		return text, "standard input", err
	}
	text, err = os.ReadFile(o.file)
	return text, o.file, err
}

// adopt shows what the policy does, asks, and writes it.
func (o *adopting) adopt(ctx context.Context, c client.Client, policy client.Object) error {
	s := &surveyor{client: c, policy: policy, cluster: o.cluster}
	if err := s.findExisting(ctx); err != nil {
		return err
	}
	stored := s.toWrite()
	if err := o.send(ctx, c, s, stored, o.dryRun != cli.ClientDryRun, true); err != nil {
		return err
	}
	if o.dryRun == cli.ClientDryRun {
		setDefaults(stored)
	}
	world, err := s.world(ctx, stored)
	if err != nil {
		return err
	}
	preview := adoption.Of(world)
	if err := o.show(preview, policy); err != nil {
		return err
	}
	o.warn(preview.Warnings)
	o.warn(s.doubts(ctx))
	switch {
	case o.output == "manifest":
		return nil
	case preview.Action == adoption.None:
		o.say("%s unchanged", resourceOf(policy))
		return nil
	case o.dryRun != cli.NoDryRun:
		o.say("%s %s%s", resourceOf(policy), s.past(), o.dryRun.Suffix())
		return nil
	}
	if err := o.confirm(preview); err != nil {
		return err
	}
	if err := o.send(ctx, c, s, s.toWrite(), true, false); err != nil {
		return err
	}
	o.say("%s %s", resourceOf(policy), s.past())
	if o.output == "table" {
		fmt.Fprintf(o.Out, "See how it is doing: %s explain %s/%s%s\n", cli.Name, kube.Described(policy).Kind, policy.GetName(), inNamespace(policy.GetNamespace()))
	}
	return nil
}

func inNamespace(name string) string {
	if name == "" {
		return ""
	}
	return " -n " + name
}

// say writes a line about what was done: beside data, to the standard error.
func (o *adopting) say(format string, args ...any) {
	out := o.Out
	if o.output != "table" {
		out = o.ErrOut
	}
	fmt.Fprintf(out, format+"\n", args...)
}

func (o *adopting) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(o.ErrOut, "warning: %s\n", w)
	}
}

// send creates or updates the policy, if it is sent at all. A dry run leaves it as the API server would store it.
func (o *adopting) send(ctx context.Context, c client.Client, s *surveyor, policy client.Object, isSent, isDryRun bool) error {
	if !isSent {
		return nil
	}
	what := resourceOf(policy) // the client writes the answer into the object
	if c = client.WithFieldOwner(c, cli.FieldManager); isDryRun {
		c = client.NewDryRunClient(c)
	}
	write := func() error { return c.Create(ctx, policy) }
	if s.existing != nil {
		write = func() error { return c.Update(ctx, policy) }
	}
	err := write()
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err) && s.policy.GetNamespace() != "":
		return fmt.Errorf("there is no namespace %s: %w", s.policy.GetNamespace(), err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("another writer was faster, run the command again: %w", err)
	}
	return fmt.Errorf("the API server refuses %s: %w", what, err)
}

// adoptionView is what the outputs json and yaml have.
type adoptionView struct {
	adoption.Preview `json:",inline"`
	// Manifest is the policy.
	Manifest map[string]any `json:"manifest"`
}

func (o *adopting) show(preview adoption.Preview, policy client.Object) error {
	manifest, err := manifestOf(policy)
	if err != nil {
		return err
	}
	switch o.output {
	case "json", "yaml":
		return cli.WriteData(o.Out, o.output, adoptionView{preview, manifest})
	case "manifest":
		return cli.WriteData(o.Out, "yaml", manifest)
	}
	var text strings.Builder
	if err := preview.WriteText(&text); err != nil {
		return err
	}
	_, err = io.WriteString(o.Out, explain.Wrap(text.String(), cli.Width(o.Out))+"\n")
	return err
}

// errNotConfirmed is the result of the answer no.
var errNotConfirmed = errors.New("not confirmed: nothing was written")

// confirm asks whether to write the policy.
func (o *adopting) confirm(preview adoption.Preview) error {
	if o.yes {
		return nil
	}
	if !cli.IsTerminal(o.In) {
		return cli.Usagef("nothing was written: there is no terminal to ask, so add --yes, or --dry-run to only look")
	}
	return asked(o.In, o.ErrOut, fmt.Sprintf("%s %s %s?", preview.Action, preview.Kind, preview.Name))
}

// asked asks a question. Anything but yes is a no.
func asked(in io.Reader, out io.Writer, question string) error {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// past is what was done to the policy.
func (s *surveyor) past() string {
	if s.existing == nil {
		return "created"
	}
	return "changed"
}

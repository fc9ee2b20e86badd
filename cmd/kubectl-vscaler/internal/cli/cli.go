// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli has what all commands of the plugin share: flags, errors and exit codes, and how they write.
package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Name is the command that users type.
const Name = "kubectl vscaler"

// FieldManager is the owner of the fields that the plugin writes.
const FieldManager = "kubectl-vscaler"

// Version is the version of the plugin.
var Version = "devel"

// FailedCheck is the result of a check that failed.
type FailedCheck string

func (f FailedCheck) Error() string { return string(f) }

// UsageError is an error that the user must correct on the command line.
type UsageError struct{ error }

// Usage makes an error one that the user must correct on the command line.
func Usage(err error) error { return UsageError{err} }

// Usagef is Usage with the text of the error.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

func (u UsageError) Unwrap() error { return u.error }

// ExitCode is 1 for a failure, 2 for invalid usage, and 3 for a failed check.
func ExitCode(err error) int {
	var (
		usage  UsageError
		failed FailedCheck
	)
	switch {
	case errors.As(err, &usage):
		return 2
	case errors.As(err, &failed):
		return 3
	}
	return 1
}

// refused are the parts of an error of the API server that name a user, a verb and a namespace.
var refused = regexp.MustCompile(`User ("[^ ]+") cannot ([a-z]+) .* in the namespace "([^"]+)"`)

// withRole adds the command that grants a right on one of our kinds to an error that names the right.
func withRole(err error) error {
	var answer apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &answer) {
		return err
	}
	if about := answer.Status().Details; about == nil || about.Group != v1beta1.GroupVersion.Group {
		return err
	}
	parts := refused.FindStringSubmatch(err.Error())
	if parts == nil {
		return fmt.Errorf("%w\nThe built-in roles may lack this right. An administrator can bind the ClusterRole verticalscaler-viewer to read, "+
			"verticalscaler-editor to write, and verticalscaler-resizer for scalers in the mode InPlace", err)
	}
	user, quoteErr := strconv.Unquote(parts[1])
	if quoteErr != nil {
		return err
	}
	namespace, role, more := parts[3], "verticalscaler-editor", ", and with verticalscaler-resizer for scalers in the mode InPlace"
	if slices.Contains([]string{"get", "list", "watch"}, parts[2]) {
		role, more = "verticalscaler-viewer", ""
	}
	name := role + "-" + strings.NewReplacer("/", "-", "%", "-").Replace(user) // which such a name may not have
	return fmt.Errorf("%w\nThe built-in roles may lack this right. An administrator can grant it%s:\n"+
		"kubectl create rolebinding '%s' -n %s --clusterrole=%s --user='%s'", err, more, name, namespace, role, user)
}

//go:embed help
var help embed.FS

// Command completes a command, with the text and examples of help/NAME.txt. Its arguments are completed with files only if
// its ValidArgsFunction does.
func Command(c *cobra.Command, run func(ctx context.Context, c *cobra.Command, args []string) error) *cobra.Command {
	text, err := help.ReadFile("help/" + c.Name() + ".txt")
	if err != nil {
		panic(err) // a mistake of this program
	}
	about, examples, _ := strings.Cut(string(text), "\n\nExamples:\n\n")
	c.Long, c.Example = about, strings.TrimRight(examples, "\n")
	c.RunE = func(c *cobra.Command, args []string) error { return withRole(run(c.Context(), c, args)) }
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return c
}

// NoArguments rejects arguments.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unexpected argument %q: see \"%s --help\"", args[0], c.CommandPath())
	}
	return nil
}

// NoCommand rejects unknown subcommands.
func NoCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		return Usagef("unknown command %q: did you mean %s?", args[0], strings.Join(like, " or "))
	}
	return Usagef("unknown command %q: see \"%s --help\"", args[0], c.CommandPath())
}

// choice is a flag with a fixed set of values.
type choice[T ~string] struct {
	into   *T
	values []T
}

func (c choice[T]) String() string { return string(*c.into) }

func (c choice[T]) Type() string { return "string" }

func (c choice[T]) Set(value string) error {
	if !slices.Contains(c.values, T(value)) {
		return fmt.Errorf("use one of %s", strings.Join(c.names(), ", "))
	}
	*c.into = T(value)
	return nil
}

func (c choice[T]) names() (names []string) {
	for _, value := range c.values {
		names = append(names, string(value))
	}
	return names
}

// AddChoice adds a flag with a fixed set of values, which are named after the usage and completed. The present value is the
// default.
func AddChoice[T ~string](c *cobra.Command, into *T, name, shorthand string, values []T, usage string) {
	of := choice[T]{into, values}
	c.Flags().VarP(of, name, shorthand, usage+": "+strings.Join(of.names(), ", ")+".")
	Complete(c, name, of.names())
}

// Complete completes the values of a flag.
func Complete(c *cobra.Command, flag string, values []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag that does not exist
	}
}

// DryRun is the value of kubectl's flag --dry-run.
type DryRun string

// The values of --dry-run.
const (
	NoDryRun     DryRun = "none"
	ServerDryRun DryRun = "server"
	ClientDryRun DryRun = "client"
)

// AddDryRun adds kubectl's flag --dry-run.
func AddDryRun(c *cobra.Command, into *DryRun) {
	*into = NoDryRun
	AddChoice(c, into, "dry-run", "", []DryRun{NoDryRun, ServerDryRun, ClientDryRun},
		"Change nothing, and let the API server check the change (server) or send nothing (client)")
	c.Flags().Lookup("dry-run").NoOptDefVal = string(ServerDryRun)
}

// Suffix ends the line about a change.
func (d DryRun) Suffix() string {
	return map[DryRun]string{ClientDryRun: " (dry run)", ServerDryRun: " (server dry run)"}[d]
}

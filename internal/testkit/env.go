// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testkit has the shared parts of tests, so that a test states only its subject. They are
// a real API server, a kubelet that the test controls, and builders of valid objects.
package testkit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/resizes"
)

// Env is a running API server with our CRDs and its audit log.
type Env struct {
	// Config is an administrator's.
	Config *rest.Config
	// Client reads and writes as the administrator, without a cache.
	Client client.WithWatch

	actsAs     rest.ImpersonationConfig // the user that StartOperator's operators act as; if empty, the user of Config
	audit      string                   // the audit log, if any
	kwok       bool                     // the nodes and pods are simulated by kwok
	kubeconfig string                   // the administrator's kubeconfig
	kubectl    string                   // the path of kubectl; empty for the user's kubectl
	sidecars   bool                     // new pods of tests get a sidecar
	stop       func() error
	plane      *envtest.ControlPlane // of Start
}

// adminToken is the token of the administrator of an API server that a test has started.
const adminToken = "administrator"

// Start starts etcd and an API server. KUBEBUILDER_ASSETS is their folder; without it, they are
// built.
func Start() (*Env, error) {
	programs, err := assets()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "verticalscaler-env-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the API server: %w", err)
	}
	e := &Env{audit: filepath.Join(dir, "audit.log"), kubectl: filepath.Join(programs, "kubectl")}
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		BinaryAssetsDirectory: programs,
	}
	// The data and the certificates outlive a restart.
	environment.ControlPlane.Etcd = &envtest.Etcd{DataDir: filepath.Join(dir, "etcd")}
	environment.ControlPlane.GetAPIServer().CertDir = dir
	// A token is checked faster than a certificate, whose chain is verified for each request.
	token := filepath.Join(dir, "token.csv")
	if err := os.WriteFile(token, []byte(adminToken+",admin,admin,system:masters\n"), 0o600); err != nil {
		return nil, fmt.Errorf("writing the token: %w", err)
	}
	environment.ControlPlane.GetAPIServer().Configure().
		Append("shutdown-send-retry-after", "true"). // so that it does not wait for open watches
		Append("token-auth-file", token).
		Append("audit-policy-file", auditPolicy()).
		Append("audit-log-path", e.audit).
		Append("audit-log-format", "json").
		Append("audit-log-mode", "blocking")
	if e.Config, err = environment.Start(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	e.Config.BearerToken, e.Config.CertData, e.Config.KeyData = adminToken, nil, nil
	e.kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	if err := os.WriteFile(e.kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the kubeconfig: %w", err), environment.Stop())
	}
	e.plane = &environment.ControlPlane
	e.stop = func() error {
		if err := environment.Stop(); err != nil {
			return fmt.Errorf("stopping the API server: %w", err)
		}
		return os.RemoveAll(dir)
	}
	return e, e.connect()
}

// connect creates the client.
func (e *Env) connect() (err error) {
	// Tests are not throttled: the server's API priority and fairness is enough.
	e.Config.QPS, e.Config.Burst = -1, -1
	if e.Client, err = client.NewWithWatch(e.Config, client.Options{Scheme: app.Scheme()}); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return nil
}

// Stop stops the processes, and removes their files.
func (e *Env) Stop() error { return e.stop() }

// BackUp saves the data of etcd, which Start has started. The returned function restores it: all objects and their versions
// go back. Both restart etcd and the API server.
func (e *Env) BackUp(t testing.TB) (restore func()) {
	t.Helper()
	data, backup := e.plane.Etcd.DataDir, filepath.Join(t.TempDir(), "backup")
	e.restart(t, func() error { return os.CopyFS(backup, os.DirFS(data)) })
	return func() {
		t.Helper()
		e.restart(t, func() error {
			return cmp.Or(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
		})
	}
}

// restart stops etcd and the API server, and starts them after a change of their files.
func (e *Env) restart(t testing.TB, change func() error) {
	t.Helper()
	server, etcd := e.plane.GetAPIServer(), e.plane.Etcd
	for _, step := range []func() error{server.Stop, etcd.Stop, change, etcd.Start, server.Start} {
		must.Succeed(t, step())
	}
}

// auditPolicy is the path of the policy by which the API server logs writes.
func auditPolicy() string {
	return filepath.Join(Root(), "internal", "testkit", "testdata", "audit-policy.yaml")
}

// Write is a write request that the API server has answered.
type Write struct {
	User      string
	UserAgent string
	Verb      string
	Group     string
	Resource  string // with subresource: "pods/resize"
	Namespace string
	Name      string
	DryRun    bool
	Code      int32
	Message   string    // of a rejected request
	Received  time.Time // by the API server's clock, in microseconds
}

// String describes the request in one line.
func (w Write) String() string {
	return fmt.Sprintf("%s %s %s/%s (%d) by %s", w.Verb, w.Resource, w.Namespace, w.Name, w.Code, w.UserAgent)
}

// AuditMark is a position in the audit log.
type AuditMark int64

// Mark is the current end of the audit log.
func (e *Env) Mark() AuditMark {
	content, err := os.ReadFile(e.audit)
	if err != nil {
		return 0
	}
	// An incomplete line counts as later: reading cannot start inside a line.
	return AuditMark(bytes.LastIndexByte(content, '\n') + 1)
}

// WritesSince lists the write requests since the mark whose user agent contains agent.
func (e *Env) WritesSince(mark AuditMark, agent string) ([]Write, error) {
	f, err := os.Open(e.audit)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := f.Seek(int64(mark), 0); err != nil {
		return nil, fmt.Errorf("seeking in the audit log: %w", err)
	}
	var out []Write
	lines := bufio.NewReader(f)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil // a line without an end is still being written
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		var line auditv1.Event
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("decoding the audit log: %w", err)
		}
		if !strings.Contains(line.UserAgent, agent) {
			continue
		}
		object, answer := ptr.Deref(line.ObjectRef, auditv1.ObjectReference{}), ptr.Deref(line.ResponseStatus, metav1.Status{})
		out = append(out, Write{
			User: line.User.Username, UserAgent: line.UserAgent, Verb: line.Verb, Group: object.APIGroup, Resource: path.Join(object.Resource, object.Subresource),
			Namespace: object.Namespace, Name: object.Name, DryRun: strings.Contains(line.RequestURI, "dryRun="), Code: answer.Code, Message: answer.Message,
			Received: line.RequestReceivedTimestamp.Time,
		})
	}
}

// Writes is WritesSince, for a test.
func (e *Env) Writes(t testing.TB, mark AuditMark, agent string) []Write {
	t.Helper()
	writes, err := e.WritesSince(mark, agent)
	must.Succeed(t, err)
	return writes
}

// Root is the root of the source tree: the closest parent folder with a go.mod.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			panic("no go.mod above the working directory")
		}
		dir = parent
	}
}

// Main runs a package's tests against one API server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env)) }
func Main(m *testing.M, env **Env) int { return mainWith(m, env, Start) }

// SteppedMain runs a package's tests against one API server whose operators are reconciled step by step (test/world), with
// the rights of config/default and its admission policies. The policy for new pods is installed, and new pods get a sidecar.
func SteppedMain(m *testing.M, env **Env) int {
	log.SetLogger(logr.Discard())
	if err := flag.Set("test.parallel", "8"); err != nil { // They mostly wait for answers. A flag of the command line comes later.
		panic(err)
	}
	return mainWith(m, env, func() (*Env, error) {
		e, err := Start()
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		if err := cmp.Or(e.Install(ctx), e.InstallComponents(ctx, "new-pods", "recreate"), e.InjectSidecars(ctx)); err != nil {
			return nil, errors.Join(err, e.Stop())
		}
		return e, nil
	})
}

// AsOperator is a client with the rights of the operator's service account.
func (e *Env) AsOperator() (client.WithWatch, error) {
	return client.NewWithWatch(e.OfOperator(), client.Options{Scheme: app.Scheme()})
}

// OfOperator is a configuration with the rights of the operator's service account.
func (e *Env) OfOperator() *rest.Config {
	c := rest.CopyConfig(e.Config)
	c.Impersonate = e.actsAs
	return resizes.Check(c, e.Client)
}

func mainWith(m *testing.M, env **Env, start func() (*Env, error)) int {
	e, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*env = e
	code := m.Run()
	if err := errors.Join(panics(), resizes.Err(), e.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// panics is an error if a reconcile of any operator in this process has panicked. The
// controller recovers from a panic, and the next reconcile may hide it.
func panics() error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return fmt.Errorf("reading the metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_panics_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if n := metric.GetCounter().GetValue(); n > 0 {
				err = errors.Join(err, fmt.Errorf("%g reconciles have panicked: %s", n, metric))
			}
		}
	}
	return err
}

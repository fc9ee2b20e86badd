// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// containersAtOnce is about how many containers are read at once. A namespace is never split.
	containersAtOnce = 500
	// namespacesAtOnce limits the length of a query.
	namespacesAtOnce = 100
)

// Selection says which workloads to report.
type Selection struct {
	Namespace   string          // empty for all
	Labels      labels.Selector // nil for all
	Deployments []string        // no other workloads than Deployments with these names; empty for all
}

// where names the namespace.
func (s Selection) where() string {
	if s.Namespace == metav1.NamespaceAll {
		return "in any namespace"
	}
	return "in namespace " + s.Namespace
}

func (s Selection) String() string {
	where := s.where()
	if !s.Labels.Empty() {
		where += " with the labels " + s.Labels.String()
	}
	if len(s.Deployments) > 0 {
		where += " with the name " + strings.Join(s.Deployments, " or ")
	}
	return where
}

// has reports whether a Deployment of the namespace is selected by its name.
func (s Selection) has(deployment string) bool {
	return len(s.Deployments) == 0 || slices.Contains(s.Deployments, deployment)
}

// Reporter reads what is deployed and its usage, and replays it. Without past usage, it reads what scalers recommend, and usage now.
type Reporter struct {
	Past      *past.Options
	Cluster   *kube.Cluster // nil to read kube-state-metrics instead
	Options   fleet.Options
	Selection Selection
	Until     time.Time
	Workers   int           // 0 for one for each processor
	Save      string        // a folder; empty for none
	Top       int           // how many containers have pictures
	Progress  *cli.Progress // nil for none

	tables  tables
	skipped []fleet.Skipped
	// running has the workload of each pod, used the most that a pod of a workload uses now, and missing the reason why it is
	// unknown in a namespace.
	running map[types.NamespacedName]podKey
	used    map[podKey]quantity.Amounts
	missing map[string]string
}

// Report reads what is deployed, and replays its usage.
func (r *Reporter) Report(ctx context.Context) (*fleet.Report, error) {
	if r.Progress == nil {
		r.Progress = cli.NewProgress(io.Discard)
	}
	if r.Selection.Labels == nil {
		r.Selection.Labels = labels.Everything() // without a selector, a client selects nothing
	}
	switch {
	case len(r.tables.paths) > 0:
		return r.fromTables(ctx)
	case r.Past.Address == "":
		return r.fromScalers(ctx)
	}
	source, err := r.Past.Source(r.Selection.Deployments...)
	if err != nil {
		return nil, err
	}
	containers, err := r.inventory(ctx, source)
	if err != nil {
		return nil, err
	}
	containers = r.readable(containers)
	r.readPrices(ctx, source)
	before := len(r.skipped)
	rows, err := r.replay(ctx, source, containers)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, r.nothing(ctx, source, len(containers), r.skipped[before:])
	}
	return fleet.New(rows, r.skipped, r.from(), r.Until, r.Options), nil
}

// readPrices takes OpenCost's prices, unless others are given.
func (r *Reporter) readPrices(ctx context.Context, source *prometheus.Source) {
	if r.Options.Prices != nil {
		return
	}
	prices, err := source.Prices(ctx, r.Until)
	switch {
	case err != nil:
		r.Progress.Warn("OpenCost's prices cannot be read: " + r.Past.Explain(err).Error())
	case prices != prometheus.Prices{}:
		r.Options.Prices = &fleet.Prices{CPUCoreHour: prices.CPUCoreHour, MemoryGiBHour: prices.MemoryGiBHour}
		r.Options.PricesFrom = "OpenCost's metrics, the mean of all nodes"
	}
}

func (r *Reporter) from() time.Time { return r.Until.Add(-r.Past.Since) }

// replay reads the usage of some namespaces while it replays that of those before, and keeps neither.
func (r *Reporter) replay(ctx context.Context, source *prometheus.Source, containers []fleet.Container) (rows []fleet.Row, err error) {
	var (
		read = make(chan part)
		all  = prometheus.FleetUsage{Refused: map[usage.Refusal]int{}} // without usage
		done atomic.Int64
	)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(read)
		for _, p := range partsOf(containers) {
			var err error
			p.step = r.Past.Step
			p.usage, err = source.Fleet(ctx, p.namespaces, p.kinds(), r.from(), r.Until, p.has, func(until time.Time) {
				r.Progress.Report(fmt.Sprintf("Reading usage until %s; replayed %d of %d containers", until.UTC().Format(time.DateTime), done.Load(), len(containers)))
			})
			if err != nil {
				return r.Past.Explain(err)
			}
			select {
			case read <- p:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		for p := range read {
			if err := r.savePart(p); err != nil {
				return fmt.Errorf("saving usage: %w", err)
			}
			rows = append(rows, r.evaluate(slices.Collect(maps.Values(p.containers)), p.usageOf, &done)...)
			fleet.KeepPlots(rows, r.Top)
			all.Warnings = append(all.Warnings, p.usage.Warnings...)
			for why, n := range p.usage.Refused {
				all.Refused[why] += n
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(all.Warnings)
	warnings := slices.Compact(all.Warnings)
	for _, warning := range warnings[:min(len(warnings), past.MaxWarnings)] {
		r.Progress.Warn("Prometheus: " + warning)
	}
	if len(all.Refused) > 0 {
		r.Progress.Warn("some points from Prometheus could not be used" + past.CountsOf(all.Refused))
	}
	return rows, nil
}

// part are containers that are read together: all of some namespaces.
type part struct {
	namespaces []string
	containers map[prometheus.FleetContainer]fleet.Container
	usage      *prometheus.FleetUsage
	step       time.Duration
}

// kinds are the kinds of the containers' workloads.
func (p part) kinds() (kinds []string) {
	for c := range p.containers {
		if !slices.Contains(kinds, c.Kind) {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds
}

func (p part) has(c prometheus.FleetContainer) bool {
	_, has := p.containers[c]
	return has
}

func keyOf(c fleet.Container) prometheus.FleetContainer {
	return prometheus.FleetContainer{Namespace: c.Namespace, Kind: c.Kind, Workload: c.Workload, Container: c.Name}
}

// partsOf splits containers, which are sorted by namespace.
func partsOf(containers []fleet.Container) (parts []part) {
	for _, c := range containers {
		last := len(parts) - 1
		isNew := last < 0 || parts[last].namespaces[len(parts[last].namespaces)-1] != c.Namespace
		if isNew && (last < 0 || len(parts[last].containers) >= containersAtOnce || len(parts[last].namespaces) >= namespacesAtOnce) {
			parts = append(parts, part{containers: map[prometheus.FleetContainer]fleet.Container{}})
			last++
		}
		if isNew {
			parts[last].namespaces = append(parts[last].namespaces, c.Namespace)
		}
		parts[last].containers[keyOf(c)] = c
	}
	return parts
}

// usageOf is the usage of a container: the intervals in which both CPU and memory are known. It is not ok if none is known.
func (p part) usageOf(c fleet.Container) (usage backtest.Trace, ok bool) {
	used := p.usage.Usage[keyOf(c)]
	if used == nil {
		return usage, false
	}
	usage = backtest.Trace{Step: p.step, HasMemory: true, Samples: make([]backtest.Sample, 0, len(used.CPUMillis))}
	for i, cpu := range used.CPUMillis {
		if memory := used.MemoryBytes[i]; cpu >= 0 && memory >= 0 {
			at := used.First.Add(time.Duration(i-1) * p.step) // an interval begins a step before its point
			usage.Samples = append(usage.Samples, backtest.Sample{At: at.Unix(), CPUMillis: float64(cpu), MemoryBytes: memory})
		}
	}
	return usage, true
}

// evaluate replays the usage of containers, several at the same time.
func (r *Reporter) evaluate(containers []fleet.Container, usageOf func(fleet.Container) (backtest.Trace, bool), done *atomic.Int64) (rows []fleet.Row) {
	var (
		group errgroup.Group
		mutex sync.Mutex
	)
	group.SetLimit(cmp.Or(r.Workers, runtime.GOMAXPROCS(0)))
	for _, c := range containers {
		group.Go(func() error {
			row, why := r.row(c, usageOf)
			mutex.Lock()
			defer mutex.Unlock()
			done.Add(1)
			if why == "" {
				rows = append(rows, row)
			} else {
				r.skip(c, why)
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
	return rows
}

// row is the result for one container, or why there is none.
func (r *Reporter) row(c fleet.Container, usageOf func(fleet.Container) (backtest.Trace, bool)) (row fleet.Row, why string) {
	usage, ok := usageOf(c)
	if !ok {
		return row, "Prometheus knows no usage of its pods"
	}
	row, ok = r.Options.Evaluate(c, usage)
	if !ok {
		return row, fmt.Sprintf("its usage is not longer than the warm-up of %s", r.Options.WarmUp)
	}
	return row, ""
}

func (r *Reporter) skip(c fleet.Container, why string) {
	r.skipped = append(r.skipped, fleet.Skipped{Namespace: c.Namespace, Kind: c.Kind, Workload: c.Workload, Container: c.Name, Why: why})
}

// readable leaves out containers without pods, and those whose pods cannot be found by name.
func (r *Reporter) readable(all []fleet.Container) (containers []fleet.Container) {
	for _, c := range all {
		switch longest := prometheus.LongestName(c.Kind); {
		case c.Replicas == 0:
			r.skip(c, "it has no replicas")
		case len(c.Workload) > longest:
			r.skip(c, fmt.Sprintf("the name of the %s is longer than %d characters, so its pods' names do not contain it in full", c.Kind, longest))
		default:
			containers = append(containers, c)
		}
	}
	return containers
}

// nothing says why no container can be reported: because of what was skipped of those that were asked for.
func (r *Reporter) nothing(ctx context.Context, source *prometheus.Source, asked int, skipped []fleet.Skipped) error {
	if asked == 0 {
		return fmt.Errorf("none of the selected workloads can be reported: %s", r.skipped[0].Why)
	}
	for _, metric := range []string{prometheus.CPUMetric, prometheus.MemoryMetric} {
		has, err := source.Has(ctx, metric, r.Until)
		switch {
		case err != nil:
			return r.Past.Explain(err)
		case !has:
			return fmt.Errorf("Prometheus at %s has no cAdvisor metrics (%s) at %s: it must scrape the kubelets' /metrics/cadvisor", //nolint:staticcheck // a name
				r.Past.Address, metric, r.Until.UTC().Format(time.RFC3339))
		}
	}
	return fmt.Errorf("Prometheus at %s has cAdvisor metrics, but not enough of the %d containers of the selected workloads since %s: %s (see --since, --until and --prometheus-label)", //nolint:staticcheck // a name
		r.Past.Address, asked, r.from().UTC().Format(time.RFC3339), reasonsOf(skipped))
}

// reasonsOf are the reasons for which containers are skipped.
func reasonsOf(skipped []fleet.Skipped) string {
	why := map[string]bool{}
	for _, s := range skipped {
		why[s.Why] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(why)), "; ")
}

// inventory are the containers of the selected workloads, sorted, at least one.
func (r *Reporter) inventory(ctx context.Context, source *prometheus.Source) (all []fleet.Container, err error) {
	if r.Cluster == nil {
		all, err = r.fromMetrics(ctx, source)
	} else {
		all, err = r.fromCluster(ctx)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no workload selected: there is none %s", r.Selection)
	}
	return all, err
}

func (r *Reporter) fromMetrics(ctx context.Context, source *prometheus.Source) (all []fleet.Container, err error) {
	r.Progress.Report("Reading Deployments from kube-state-metrics")
	var namespaces []string
	if r.Selection.Namespace != metav1.NamespaceAll {
		namespaces = []string{r.Selection.Namespace}
	}
	sizes, err := source.Inventory(ctx, namespaces, r.Until)
	if err != nil {
		return nil, r.Past.Explain(err)
	}
	for _, s := range sizes {
		if !r.Selection.has(s.Workload) {
			continue
		}
		all = append(all, fleet.Container{
			Namespace: s.Namespace, Kind: s.Kind, Workload: s.Workload, Name: s.Container, Replicas: s.Replicas, Requests: s.Requests, Limits: s.Limits,
		})
	}
	if len(sizes) > 0 {
		return all, nil
	}
	for _, metric := range []string{prometheus.DeploymentMetric, prometheus.ContainerMetric} {
		has, err := source.Has(ctx, metric, r.Until)
		switch {
		case err != nil:
			return nil, r.Past.Explain(err)
		case !has:
			return nil, fmt.Errorf("Prometheus at %s has no metrics of kube-state-metrics (%s) at %s: omit --from-metrics to read Deployments from the cluster", //nolint:staticcheck // a name
				r.Past.Address, metric, r.Until.UTC().Format(time.RFC3339))
		}
	}
	return nil, nil
}

func (r *Reporter) fromCluster(ctx context.Context) (all []fleet.Container, err error) {
	r.Progress.Report("Reading workloads and pods from the cluster")
	c, err := r.Cluster.Open()
	if err != nil {
		hint := ""
		if r.Past.Address != "" {
			hint = " (or set --from-metrics)"
		}
		return nil, fmt.Errorf("reading Deployments from the cluster%s: %w", hint, err)
	}
	running, err := r.pods(ctx, c)
	if err != nil {
		return nil, err
	}
	isForScalers := r.Past.Address == "" // and scalers size Deployments only
	for _, kind := range kinds {
		if kind != prometheus.Deployment && (isForScalers || len(r.Selection.Deployments) > 0) {
			continue
		}
		err := list(ctx, c, kind, func(w *appsv1.Deployment) {
			if r.Selection.has(w.Name) {
				all = append(all, r.containersOf(kind, w, running)...)
			}
		}, client.InNamespace(r.Selection.Namespace), client.MatchingLabelsSelector{Selector: r.Selection.Labels})
		switch {
		case err == nil, kind == prometheus.Rollout && apierrors.IsNotFound(err):
		case kind != prometheus.Deployment && apierrors.IsForbidden(err):
			r.Progress.Warn(fmt.Sprintf("%ss are left out: %v", kind, err))
		default:
			return nil, fmt.Errorf("listing %ss: %w", kind, err)
		}
	}
	slices.SortFunc(all, func(a, b fleet.Container) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// containersOf are the containers of a workload, with the sizes of running pods or else of the template.
func (r *Reporter) containersOf(kind string, w *appsv1.Deployment, running map[podKey]workload.Container) (all []fleet.Container) {
	controller := ""
	if owner := metav1.GetControllerOf(w); owner != nil {
		controller = owner.Kind + " " + owner.Name
	}
	d := workload.ReadDeployment(w)
	for _, template := range d.Containers {
		size, isRunning := running[podKey{types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, kind, template.Name}]
		if !isRunning {
			size = sizeOf(template)
		}
		c := fleet.Container{
			Namespace: d.Namespace, Kind: kind, Workload: d.Name, Name: template.Name, Replicas: int(d.Replicas), Requests: size.Requests, Limits: size.Limits,
			HeapBytes: d.Heaps[template.Name].Bytes, IsSidecar: template.IsSidecar, Controller: controller, Label: w.Labels[strings.TrimPrefix(r.Options.GroupBy, fleet.GroupByLabel)],
		}
		if size.Unreadable {
			r.skip(c, "it has a request or limit that is out of range")
			continue
		}
		all = append(all, c)
	}
	return all
}

// podKey names a container of the pods of a workload.
type podKey struct {
	types.NamespacedName
	kind, container string
}

// pods are the sizes of the containers of running pods: the largest of any pod of a workload.
func (r *Reporter) pods(ctx context.Context, c client.Client) (map[podKey]workload.Container, error) {
	sizes := map[podKey]workload.Container{}
	r.running = map[types.NamespacedName]podKey{}
	err := kube.List(ctx, c, func(page *corev1.PodList) {
		for i := range page.Items {
			kind, name := workloadOf(&page.Items[i])
			of := types.NamespacedName{Namespace: page.Items[i].Namespace, Name: name}
			pod := workload.ReadPod(&page.Items[i], true)
			if of.Name == "" || pod.Terminating || pod.Ended {
				continue
			}
			r.running[client.ObjectKeyFromObject(&page.Items[i])] = podKey{NamespacedName: of, kind: kind}
			for _, container := range pod.Containers {
				key := podKey{of, kind, container.Name}
				sizes[key] = largest(sizes[key], sizeOf(container))
			}
		}
	}, client.InNamespace(r.Selection.Namespace))
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return sizes, nil
}

// sizeOf is a container with its declared resources, and with the requests that follow from limits.
func sizeOf(c workload.Container) workload.Container {
	c.Requests = c.Requests.Or(c.Limits)
	return c
}

func largest(a, b workload.Container) workload.Container {
	b.Requests, b.Limits, b.Unreadable = most(a.Requests, b.Requests), most(a.Limits, b.Limits), a.Unreadable || b.Unreadable
	return b
}

func most(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: max(a.CPUMillis, b.CPUMillis), MemoryBytes: max(a.MemoryBytes, b.MemoryBytes)}
}

// leastObserved is the usage that a recommendation must be based on: with less, some hours of the day are not known. A
// status notes usage only when it has doubled, so it may have half of what was observed.
const leastObserved = 24 * time.Hour

// fromScalers compares what is deployed with what scalers recommend or, without that, with usage now.
func (r *Reporter) fromScalers(ctx context.Context) (*fleet.Report, error) {
	r.Options.Rules = append([]backtest.Rule{{Name: "scaler", About: "what VerticalScalers in updateMode Recommend recommend now"}}, Rules()...)
	containers, err := r.inventory(ctx, nil)
	if err != nil {
		return nil, err
	}
	scalers, err := r.scalers(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.readUsage(ctx, containers); err != nil {
		return nil, err
	}
	var rows []fleet.Row
	for _, c := range containers {
		row, why := r.recommended(c, scalers[types.NamespacedName{Namespace: c.Namespace, Name: c.Workload}])
		if why != "" {
			r.skip(c, why)
			continue
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("none of the selected workloads can be reported: %s. Set --prometheus to report by past usage, or create scalers with \"%s adopt\"", reasonsOf(r.skipped), cli.Name)
	}
	return fleet.OfScalers(rows, r.skipped, r.Options), nil
}

// readUsage reads usage now from metrics.k8s.io.
func (r *Reporter) readUsage(ctx context.Context, containers []fleet.Container) error {
	r.Progress.Report("Reading usage now")
	reader, err := r.Cluster.OpenSnapshots()
	if err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, c := range containers {
		namespaces[c.Namespace] = true
	}
	samples, missing := reader.UsageNow(ctx, slices.Sorted(maps.Keys(namespaces)))
	r.used, r.missing = map[podKey]quantity.Amounts{}, missing
	for _, s := range samples {
		key := r.running[types.NamespacedName{Namespace: s.Namespace, Name: s.Pod}]
		key.container = s.Container
		r.used[key] = most(r.used[key], quantity.Amounts{CPUMillis: s.CPUMillis, MemoryBytes: s.MemoryBytes})
	}
	return nil
}

// now compares a container with its usage now, or reports why it cannot. noTarget is the reason why no recommendation is used.
func (r *Reporter) now(c fleet.Container, noTarget string) (row fleet.Row, why string) {
	used, ok := r.used[podKey{types.NamespacedName{Namespace: c.Namespace, Name: c.Workload}, c.Kind, c.Name}]
	if !ok {
		return row, fmt.Sprintf("%s (no usage now: %s)", noTarget, cmp.Or(r.missing[c.Namespace], "metrics.k8s.io has none of its pods"))
	}
	return r.Options.Now(c, used), ""
}

// recommended compares a container with the recommendation of its scaler or, without enough evidence, with its usage now. It
// reports why it can do neither.
func (r *Reporter) recommended(c fleet.Container, s *v1beta1.VerticalScaler) (row fleet.Row, why string) {
	if c.Replicas == 0 {
		return row, "it has no replicas"
	}
	if s == nil {
		return r.now(c, "no scaler sizes its Deployment")
	}
	if mode := cmp.Or(s.Spec.UpdatePolicy.UpdateMode, v1beta1.UpdateModeInPlace); mode != v1beta1.UpdateModeRecommend {
		return row, fmt.Sprintf("its scaler applies what it recommends (updateMode %s)", mode)
	}
	rec := scaler.PublishedRecommendation(s.Status.Recommendation, c.Name)
	switch {
	case rec == nil || rec.Target == quantity.Amounts{}:
		return r.now(c, "its scaler recommends nothing for it yet, or does not size it")
	case rec.Observed < leastObserved:
		return r.now(c, fmt.Sprintf("its scaler has observed less than %s of usage", leastObserved))
	}
	if scaler.IsRaiseOnly(&s.Spec, v1beta1.ControlledCPU) {
		rec.Target.CPUMillis = max(rec.Target.CPUMillis, c.Requests.CPUMillis)
	}
	if scaler.IsRaiseOnly(&s.Spec, v1beta1.ControlledMemory) {
		rec.Target.MemoryBytes = max(rec.Target.MemoryBytes, c.Requests.MemoryBytes)
	}
	return r.Options.Recommended(c, rec.Target, rec.Observed), ""
}

// scalers are the scalers of the selection by the Deployment that they size. Without the operator, there are none.
func (r *Reporter) scalers(ctx context.Context) (map[types.NamespacedName]*v1beta1.VerticalScaler, error) {
	r.Progress.Report("Reading scalers from the cluster")
	c, err := r.Cluster.Open()
	if err != nil {
		return nil, err
	}
	all, err := kube.Scalers(ctx, c, client.InNamespace(r.Selection.Namespace))
	if err != nil && !errors.Is(err, kube.ErrNotInstalled) {
		return nil, err
	}
	byDeployment, order := map[types.NamespacedName]*v1beta1.VerticalScaler{}, precedence.Of(all)
	for i := range all {
		s := &all[i]
		// The status of a scaler without this claim is about no Deployment yet, or about another one.
		if order.StandingOf(s).IsFirst() && scaler.RecordedClaim(s) == scaler.Claim(s) {
			byDeployment[scaler.Target(s)] = s
		}
	}
	return byDeployment, nil
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	helmclient "github.com/operator-framework/helm-operator-plugins/pkg/client"
	ocv1 "github.com/operator-framework/operator-controller/api/v1"
	"github.com/operator-framework/operator-controller/internal/operator-controller/action"
	"github.com/operator-framework/operator-controller/internal/operator-controller/applier"
	"github.com/operator-framework/operator-controller/internal/operator-controller/bundleutil"
	"github.com/operator-framework/operator-controller/internal/operator-controller/catalogmetadata/cache"
	catalogclient "github.com/operator-framework/operator-controller/internal/operator-controller/catalogmetadata/client"
	olmlabels "github.com/operator-framework/operator-controller/internal/operator-controller/labels"
	"github.com/operator-framework/operator-controller/internal/operator-controller/resolve"
	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/preflights/crdupgradesafety"
	"github.com/operator-framework/operator-controller/internal/operator-controller/scheme"
	httputil "github.com/operator-framework/operator-controller/internal/shared/util/http"
	"github.com/operator-framework/operator-controller/internal/shared/util/image"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"go.podman.io/image/v5/types"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installer is what operator-controller sets up when it starts.
type installer struct {
	config    *rest.Config
	client    client.Client
	catalogCA string // a folder with the certificate of catalogd
	cache     string // a folder
	system    string // the namespace of OLM
}

// installExtension does what operator-controller does in one reconcile of a ClusterExtension, in the same order and with the
// same packages. Unlike 1.11, it acts as the service account of the ClusterExtension, as releases up to 1.10 do.
func installExtension(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) error {
	i := &installer{}
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig of OLM")
	extensionName := flags.String("extension", "", "the name of the ClusterExtension")
	flags.StringVar(&i.catalogCA, "catalogd-cas-dir", "", "the folder with the certificate of catalogd")
	flags.StringVar(&i.cache, "cache-path", "", "the folder for what is downloaded")
	flags.StringVar(&i.system, "system-namespace", "olmv1-system", "the namespace of OLM")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if i.config, err = clientcmd.BuildConfigFromFlags("", *kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if i.client, err = client.New(i.config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	extension := &ocv1.ClusterExtension{}
	if err := i.client.Get(ctx, client.ObjectKey{Name: *extensionName}, extension); err != nil {
		return fmt.Errorf("reading the ClusterExtension: %w", err)
	}
	extension.SetGroupVersionKind(ocv1.GroupVersion.WithKind(ocv1.ClusterExtensionKind)) // for owner references
	installed, err := i.install(ctx, extension)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, installed)
	return err
}

// install installs what the catalogs offer, and returns the name of the bundle.
func (i *installer) install(ctx context.Context, extension *ocv1.ClusterExtension) (string, error) {
	account, err := i.actAs(ctx, extension)
	if err != nil {
		return "", err
	}
	releases, err := i.releases(account)
	if err != nil {
		return "", err
	}
	before, err := installed(ctx, releases, extension)
	if err != nil {
		return "", err
	}
	bundle, version, err := i.resolve(ctx, extension, before)
	if err != nil {
		return "", fmt.Errorf("resolving: %w", err)
	}
	files, err := i.pull(ctx, extension, bundle.Image)
	if err != nil {
		return "", fmt.Errorf("pulling the bundle: %w", err)
	}
	crds, err := apiextensionsv1client.NewForConfig(i.config)
	if err != nil {
		return "", fmt.Errorf("making a client for CRDs: %w", err)
	}
	watches := &watcher{config: account, client: i.client}
	helm := &applier.Helm{
		ActionClientGetter:            releases,
		Preflights:                    []applier.Preflight{crdupgradesafety.NewPreflight(crds.CustomResourceDefinitions())},
		HelmChartProvider:             &applier.RegistryV1HelmChartProvider{ManifestProvider: manifests(false)},
		HelmReleaseToObjectsConverter: &applier.HelmReleaseToObjectsConverter{},
		TrackingCache:                 watches,
	}
	metadata := bundleutil.MetadataFor(bundle.Name, *version)
	_, _, err = helm.Apply(ctx, files, extension, owner(extension), map[string]string{
		olmlabels.BundleNameKey: metadata.Name, olmlabels.BundleVersionKey: metadata.Version,
		olmlabels.PackageNameKey: bundle.Package, olmlabels.BundleReferenceKey: bundle.Image,
	})
	// The applier only logs an error of the watches.
	return bundle.Name, errors.Join(err, watches.err)
}

// owner are the labels of all objects of a ClusterExtension.
func owner(extension client.Object) map[string]string {
	return map[string]string{olmlabels.OwnerKindKey: ocv1.ClusterExtensionKind, olmlabels.OwnerNameKey: extension.GetName()}
}

// actAs is the configuration of a client with the rights of the ClusterExtension's service account.
func (i *installer) actAs(ctx context.Context, extension *ocv1.ClusterExtension) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: extension.Spec.Namespace, Name: extension.Spec.ServiceAccount.Name,
	}}
	request := &authenticationv1.TokenRequest{}
	if err := i.client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting a token of service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	config := rest.AnonymousClientConfig(i.config)
	config.BearerToken = request.Status.Token
	return config, nil
}

// releases keeps records in OLM's namespace with OLM's rights, and writes objects with those of the service account.
func (i *installer) releases(account *rest.Config) (helmclient.ActionClientGetter, error) {
	core, err := corev1client.NewForConfig(i.config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Secrets: %w", err)
	}
	configurations, err := helmclient.NewActionConfigGetter(i.config, i.client.RESTMapper(),
		helmclient.StorageDriverMapper(action.ChunkedStorageDriverMapper(core, i.client, i.system)),
		helmclient.ClientNamespaceMapper(func(object client.Object) (string, error) {
			return object.(*ocv1.ClusterExtension).Spec.Namespace, nil
		}),
		helmclient.ClientRestConfigMapper(func(context.Context, client.Object, *rest.Config) (*rest.Config, error) { return account, nil }),
	)
	if err != nil {
		return nil, fmt.Errorf("configuring Helm: %w", err)
	}
	return action.NewWrappedActionClientGetter(configurations, helmclient.WithFailureRollbacks(false))
}

// installed is the bundle that is installed, nil if none is.
func installed(ctx context.Context, releases helmclient.ActionClientGetter, extension *ocv1.ClusterExtension) (*ocv1.BundleMetadata, error) {
	helm, err := releases.ActionClientFor(ctx, extension)
	if err != nil {
		return nil, fmt.Errorf("configuring Helm: %w", err)
	}
	history, err := helm.History(extension.Name)
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, fmt.Errorf("reading what is installed: %w", err)
	}
	for _, r := range history {
		if r.Info != nil && r.Info.Status == release.StatusDeployed {
			return &ocv1.BundleMetadata{Name: r.Labels[olmlabels.BundleNameKey], Version: r.Labels[olmlabels.BundleVersionKey]}, nil
		}
	}
	return nil, nil
}

// resolve asks catalogd for the contents of all ClusterCatalogs, and chooses a bundle.
func (i *installer) resolve(ctx context.Context, extension *ocv1.ClusterExtension, installed *ocv1.BundleMetadata) (*declcfg.Bundle, *declcfg.VersionRelease, error) {
	authorities, err := httputil.NewCertPoolWatcher(i.catalogCA, ctrl.LoggerFrom(ctx))
	if err == nil {
		err = authorities.Start(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of catalogd: %w", err)
	}
	folder := filepath.Join(i.cache, "catalogs")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("making a folder: %w", err)
	}
	catalogs := catalogclient.New(cache.NewFilesystemCache(folder), func() (*http.Client, error) {
		return catalogclient.BuildHTTPClient(authorities)
	})
	resolver := &resolve.CatalogResolver{
		WalkCatalogsFunc: resolve.CatalogWalker(func(ctx context.Context, options ...client.ListOption) ([]ocv1.ClusterCatalog, error) {
			var list ocv1.ClusterCatalogList
			if err := i.client.List(ctx, &list, options...); err != nil {
				return nil, err
			}
			for c := range list.Items {
				if _, err := catalogs.PopulateCache(ctx, &list.Items[c]); err != nil {
					return nil, err
				}
			}
			return list.Items, nil
		}, catalogs.GetPackage),
		Validations: []resolve.ValidationFunc{resolve.NoDependencyValidation},
	}
	bundle, version, _, err := resolver.Resolve(ctx, extension, installed)
	return bundle, version, err
}

// pull downloads the image of a bundle and unpacks it.
func (i *installer) pull(ctx context.Context, extension *ocv1.ClusterExtension, reference string) (fs.FS, error) {
	puller := &image.ContainersImagePuller{SourceCtxFunc: func(context.Context) (*types.SystemContext, error) { return &types.SystemContext{}, nil }}
	files, _, _, err := puller.Pull(ctx, extension.Name, reference, image.BundleCache(filepath.Join(i.cache, "unpack")))
	return files, err
}

// watcher lists and watches the objects of a ClusterExtension, once for each kind. operator-controller does it for as long as
// it runs, to revert changes.
type watcher struct {
	config *rest.Config
	client client.Client
	err    error
}

// Watch lists and watches all objects of these kinds with the labels of the owner, in all namespaces.
func (w *watcher) Watch(ctx context.Context, extension client.Object, kinds sets.Set[schema.GroupVersionKind]) error {
	w.err = w.watch(ctx, extension, kinds)
	return w.err
}

func (w *watcher) watch(ctx context.Context, extension client.Object, kinds sets.Set[schema.GroupVersionKind]) error {
	all, err := dynamic.NewForConfig(w.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for kind := range kinds {
		mapping, err := w.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("looking up %s: %w", kind, err)
		}
		selected := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(owner(extension)).String()}
		found, err := all.Resource(mapping.Resource).List(ctx, selected)
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind, err)
		}
		selected.ResourceVersion = found.GetResourceVersion()
		changes, err := all.Resource(mapping.Resource).Watch(ctx, selected)
		if err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
		changes.Stop()
	}
	return nil
}

// Free does nothing: no watch goes on.
func (*watcher) Free(context.Context, client.Object) error { return nil }

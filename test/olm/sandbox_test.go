// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// entrypoint is the path of the only file in the image, see Dockerfile.
const entrypoint = "/manager"

// sandbox is a container of the pod as its process sees it: a root directory with the
// image's only file and the pod's volumes, and the environment.
type sandbox struct {
	pod  *corev1.Pod
	root string
	// health and metrics are the operator's addresses. Operators share the ports of this
	// machine, unlike pods.
	health, metrics string
}

// command creates the root directory and the command that runs the container in it.
func (b *sandbox) command(ctx context.Context, container corev1.Container) (*exec.Cmd, error) {
	if len(container.Command) > 0 {
		return nil, fmt.Errorf("the container has the command %q: only the image's own is known here", container.Command)
	}
	if err := b.write(entrypoint, nil); err != nil {
		return nil, err
	}
	if err := b.installManager(); err != nil {
		return nil, err
	}
	for _, mount := range container.VolumeMounts {
		if err := b.mount(ctx, mount); err != nil {
			return nil, err
		}
	}
	environ, err := b.environment(container)
	if err != nil {
		return nil, err
	}
	if err := b.seal(); err != nil {
		return nil, err
	}
	user, group, err := identity(b.pod, container)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(entrypoint, container.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environ, confined(b.root, user, group)
	return cmd, nil
}

// confined runs a process as that user in that root directory. Root may do that. For other
// users, the process gets a user namespace in which it is root and only that user exists.
func confined(root string, user, group int) *syscall.SysProcAttr {
	if os.Geteuid() == 0 {
		return &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(group)}}
	}
	return &syscall.SysProcAttr{
		Chroot:      root,
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: group, HostID: os.Getegid(), Size: 1}},
	}
}

// identity is the user that the pod runs as, which must not be root.
func identity(pod *corev1.Pod, container corev1.Container) (user, group int, err error) {
	of, in := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(container.SecurityContext, corev1.SecurityContext{})
	u, g := cmp.Or(in.RunAsUser, of.RunAsUser), cmp.Or(in.RunAsGroup, of.RunAsGroup)
	if u == nil || g == nil || *u < 1 || *g < 1 || *u > math.MaxUint16 || *g > math.MaxUint16 {
		return 0, 0, errors.New("the pod does not say which user and group it runs as, or says root")
	}
	return int(*u), int(*g), nil
}

func (b *sandbox) installManager() error {
	from, err := os.Open(managerPath())
	if err != nil {
		return fmt.Errorf("reading the manager: %w", err)
	}
	defer from.Close() //nolint:errcheck // only read
	to, err := os.OpenFile(filepath.Join(b.root, entrypoint), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("installing the manager: %w", err)
	}
	if _, err := io.Copy(to, from); err != nil {
		return fmt.Errorf("installing the manager: %w", err)
	}
	return to.Close()
}

// write creates a file in the container.
func (b *sandbox) write(path string, content []byte) error {
	path = filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making a folder of pod %s: %w", b.pod.Name, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("making a file of pod %s: %w", b.pod.Name, err)
	}
	return nil
}

// seal removes all write permissions, like a read-only root file system.
func (b *sandbox) seal() error {
	return filepath.WalkDir(b.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o444)
		if entry.IsDir() || path == filepath.Join(b.root, entrypoint) {
			mode = 0o555
		}
		return os.Chmod(path, mode)
	})
}

// mount fills a volume.
func (b *sandbox) mount(ctx context.Context, mount corev1.VolumeMount) error {
	for _, volume := range b.pod.Spec.Volumes {
		if volume.Name != mount.Name {
			continue
		}
		switch {
		case volume.ConfigMap != nil:
			return b.configMap(ctx, volume.ConfigMap.Name, volume.ConfigMap.Items, mount.MountPath)
		case volume.Projected != nil:
			for _, source := range volume.Projected.Sources {
				if err := b.project(ctx, source, mount.MountPath); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("volume %s is of a kind that is not known here", volume.Name)
	}
	return fmt.Errorf("there is no volume %s", mount.Name)
}

// project writes a source of a projected volume. A Secret may only be an optional one that
// does not exist: the bundle has none.
func (b *sandbox) project(ctx context.Context, source corev1.VolumeProjection, path string) error {
	switch {
	case source.ServiceAccountToken != nil:
		token, err := b.token(ctx, source.ServiceAccountToken)
		if err != nil {
			return err
		}
		return b.write(filepath.Join(path, source.ServiceAccountToken.Path), []byte(token))
	case source.Secret != nil && ptr.Deref(source.Secret.Optional, false):
		err := env.Client.Get(ctx, client.ObjectKey{Namespace: b.pod.Namespace, Name: source.Secret.Name}, &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("Secret %s is not known here", source.Secret.Name), err)
	case source.ConfigMap != nil:
		err := b.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Items, path)
		if apierrors.IsNotFound(err) && ptr.Deref(source.ConfigMap.Optional, false) {
			return nil
		}
		return err
	case source.DownwardAPI != nil:
		for _, item := range source.DownwardAPI.Items {
			value, err := field(b.pod, item.FieldRef)
			if err != nil {
				return err
			}
			if err := b.write(filepath.Join(path, item.Path), []byte(value)); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("a projected volume has a source that is not known here")
}

// token returns a token of the pod's service account that is bound to the pod.
func (b *sandbox) token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: b.pod.Name, UID: b.pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.pod.Namespace, Name: b.pod.Spec.ServiceAccountName}}
	if err := env.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("asking for a token of service account %s: %w", account.Name, err)
	}
	return request.Status.Token, nil
}

func (b *sandbox) configMap(ctx context.Context, name string, items []corev1.KeyToPath, path string) error {
	var m corev1.ConfigMap
	if err := env.Client.Get(ctx, client.ObjectKey{Namespace: b.pod.Namespace, Name: name}, &m); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	if len(items) == 0 {
		for key := range m.Data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		content, ok := m.Data[item.Key]
		if !ok {
			return fmt.Errorf("ConfigMap %s has no key %s", name, item.Key)
		}
		if strings.Contains(content, "kind: OperatorConfiguration") {
			var err error
			if content, err = b.onOwnPorts(content); err != nil {
				return fmt.Errorf("ConfigMap %s: %w", name, err)
			}
		}
		if err := b.write(filepath.Join(path, item.Path), []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

// onOwnPorts changes the addresses in the operator's configuration, and nothing else.
func (b *sandbox) onOwnPorts(content string) (string, error) {
	return edited(content, func(c map[string]any) {
		set(c, b.metrics, "metrics", "bindAddress")
		set(c, b.health, "health", "bindAddress")
	})
}

// edited changes a YAML document.
func edited(document string, change func(map[string]any)) (string, error) {
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(document), &content); err != nil {
		return "", fmt.Errorf("decoding YAML: %w", err)
	}
	change(content)
	out, err := yaml.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding YAML: %w", err)
	}
	return string(out), nil
}

// set sets a value deep in a document, and creates missing maps.
func set(content map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := content[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			content[key] = next
		}
		content = next
	}
	content[path[len(path)-1]] = value
}

// environment is the environment that the pod specifies, plus the API server's address,
// which a kubelet adds.
func (b *sandbox) environment(container corev1.Container) ([]string, error) {
	server, err := url.Parse(env.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	environ := []string{
		"HOSTNAME=" + b.pod.Name,
		"KUBERNETES_SERVICE_HOST=" + server.Hostname(),
		"KUBERNETES_SERVICE_PORT=" + server.Port(),
	}
	if len(container.EnvFrom) > 0 {
		return nil, errors.New("envFrom is not known here")
	}
	for _, v := range container.Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value, err = field(b.pod, from.FieldRef)
		case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory":
			value = fmt.Sprint(container.Resources.Limits.Memory().Value())
		default:
			err = errors.New("its source is not known here")
		}
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		environ = append(environ, v.Name+"="+value)
	}
	return environ, nil
}

// field is the value of a field of the pod, "" for a missing annotation.
func field(pod *corev1.Pod, ref *corev1.ObjectFieldSelector) (string, error) {
	if key, ok := strings.CutPrefix(ref.FieldPath, "metadata.annotations['"); ok {
		return pod.Annotations[strings.TrimSuffix(key, "']")], nil
	}
	switch ref.FieldPath {
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.name":
		return pod.Name, nil
	}
	return "", fmt.Errorf("field %s is not known here", ref.FieldPath)
}

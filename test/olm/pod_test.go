// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// command is the process of the operator's pod, with the pod's arguments, environment and ConfigMaps, and the rights of its service
// account. Unlike in a container, ConfigMaps are in a folder, and the API server is found by a kubeconfig. test/node runs the image.
func (r *runningPod) command(ctx context.Context, pod *corev1.Pod) (*exec.Cmd, error) {
	container := pod.Spec.Containers[0]
	folder := filepath.Join(work, pod.Name)
	paths := []string{}
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name != mount.Name || volume.ConfigMap == nil {
				continue
			}
			if err := r.writeConfigMap(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: volume.ConfigMap.Name}, filepath.Join(folder, mount.MountPath)); err != nil {
				return nil, err
			}
			paths = append(paths, mount.MountPath, filepath.Join(folder, mount.MountPath))
		}
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := writeKubeconfig(ctx, pod, kubeconfig); err != nil {
		return nil, err
	}
	cmd := exec.Command(managerPath())
	for _, arg := range container.Args {
		cmd.Args = append(cmd.Args, strings.NewReplacer(paths...).Replace(arg))
	}
	cmd.Dir = folder
	var err error
	cmd.Env, err = environment(pod, container)
	cmd.Env = append(cmd.Env, "HOSTNAME="+pod.Name, "KUBECONFIG="+kubeconfig)
	return cmd, err
}

// writeConfigMap writes the files of a ConfigMap. Operators share the ports of this machine, unlike pods: the addresses in the
// operator's configuration are changed, and nothing else.
func (r *runningPod) writeConfigMap(ctx context.Context, name client.ObjectKey, folder string) error {
	var m corev1.ConfigMap
	if err := env.Client.Get(ctx, name, &m); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making a folder for ConfigMap %s: %w", name, err)
	}
	for file, content := range m.Data {
		content, err := edited(content, func(c map[string]any) {
			set(c, "0", "metrics", "bindAddress")
			set(c, r.health, "health", "bindAddress")
		})
		if err != nil {
			return fmt.Errorf("ConfigMap %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing ConfigMap %s: %w", name, err)
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig with a token of the pod's service account.
func writeKubeconfig(ctx context.Context, pod *corev1.Pod, file string) error {
	var request authenticationv1.TokenRequest
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	if err := env.Client.SubResource("token").Create(ctx, account, &request); err != nil {
		return fmt.Errorf("creating a token of %s: %w", account.Name, err)
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {
			Server: env.Config.Host, CertificateAuthority: env.Config.CAFile, CertificateAuthorityData: env.Config.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": {Token: request.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, file)
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

// environment is the environment that the pod specifies.
func environment(pod *corev1.Pod, container corev1.Container) (environ []string, err error) {
	for _, v := range container.Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value, err = field(pod, from.FieldRef)
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

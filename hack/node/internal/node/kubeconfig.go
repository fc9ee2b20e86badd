// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// kubeconfig is as much of a kubeconfig as one cluster and one client certificate need. It is written as JSON, which
// every reader of kubeconfigs takes for the YAML that it also is.
type kubeconfig struct {
	APIVersion     string `json:"apiVersion"`
	Kind           string `json:"kind"`
	CurrentContext string `json:"current-context"`
	Clusters       []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			Certificate []byte `json:"client-certificate-data"`
			Key         []byte `json:"client-key-data"`
		} `json:"user"`
	} `json:"users"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
}

func parseKubeconfig(text []byte) (kubeconfig, error) {
	var k kubeconfig
	if err := json.Unmarshal(text, &k); err != nil {
		return k, err
	}
	if len(k.Clusters) != 1 || len(k.Users) != 1 || len(k.Users[0].User.Key) == 0 || len(k.Clusters[0].Cluster.CA) == 0 {
		return k, errors.New("the admin kubeconfig should hold one cluster, and one user with a client certificate")
	}
	return k, nil
}

// at is the same kubeconfig for another address of the same API server.
func (k kubeconfig) at(server string) ([]byte, error) {
	k.Clusters = append(k.Clusters[:0:0], k.Clusters...)
	k.Clusters[0].Cluster.Server = server
	return json.MarshalIndent(k, "", "  ")
}

// api is a client for the few questions that are asked while starting; starting kubectl for each would take longer
// than what it asks about.
type api struct {
	server string
	http   *http.Client
}

func (k kubeconfig) client() (*api, error) {
	pair, err := tls.X509KeyPair(k.Users[0].User.Certificate, k.Users[0].User.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.Clusters[0].Cluster.CA)
	return &api{server: k.Clusters[0].Cluster.Server, http: &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}},
	}}, nil
}

func (a *api) get(path string, into any) error {
	response, err := a.http.Get(a.server + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.Unmarshal(text, into)
}

func (a *api) nodeReady(name string) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := a.get("/api/v1/nodes/"+name, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
		if c.Type == "Ready" {
			return errors.New(c.Message)
		}
	}
	return errors.New("the node has no Ready condition yet")
}

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fetch downloads the released programs of a control plane, which need not be compiled then. Script build.sh sets the
// versions. The command checks each program with the checksum that its release publishes, keeps it in a folder of the user's
// cache, and prints the name of that folder.
//
// A program that is in the folder is not downloaded again. With any error, or without an answer in three seconds, it fails, and
// the caller compiles the programs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	f := fetcher{answerWithin: 3 * time.Second, stallsAfter: 20 * time.Second, progress: os.Stderr}
	var r release
	flag.StringVar(&r.kubernetes, "kubernetes", "", "`version` of Kubernetes, such as v1.37.2")
	flag.StringVar(&r.etcd, "etcd", "", "`version` of etcd")
	flag.StringVar(&r.kubernetesURL, "kubernetes-url", "https://dl.k8s.io/release", "where the releases of Kubernetes are")
	flag.StringVar(&r.etcdURL, "etcd-url", "https://github.com/etcd-io/etcd/releases/download", "where the releases of etcd are")
	flag.StringVar(&r.arch, "arch", runtime.GOARCH, "`architecture` of the programs, which are for Linux")
	cache := flag.String("cache", "", "`folder` to keep programs in; the user's cache if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	folder, err := run(ctx, f, r, *cache)
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: no ready-made programs: %v\n", err)
		stop()
		os.Exit(1)
	}
	fmt.Println(folder)
}

func run(ctx context.Context, f fetcher, r release, cache string) (folder string, err error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("none are released for %s", runtime.GOOS)
	}
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		cache = filepath.Join(cache, "verticalscaler-localcluster")
	}
	folder = filepath.Join(cache, fmt.Sprintf("kubernetes-%s-etcd-%s-%s", r.kubernetes, r.etcd, r.arch))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	for _, p := range r.programs() {
		if err := f.fetch(ctx, p, folder); err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return folder, nil
}

#!/bin/sh
# Prepares the cluster of $KUBECONFIG for the operator: takes the roles $1 away from it, and writes $OPERATOR_KUBECONFIG, which
# has a token of its ServiceAccount.
set -eu
for role in $1; do
	kubectl delete clusterrole "verticalscaler-$role"
done
kubectl create namespace demo
# A policy injects a native sidecar into its pods, as a service mesh does: internal/testkit/testdata/sidecar.yaml.
kubectl label namespace demo testkit.verticalscaler.io/sidecar=true
kubectl config set-context --current --namespace=demo

token=$(kubectl create token verticalscaler-operator -n verticalscaler-system --duration=24h)
cp "$KUBECONFIG" "$OPERATOR_KUBECONFIG"
kubectl config --kubeconfig="$OPERATOR_KUBECONFIG" set-credentials operator --token="$token"
kubectl config --kubeconfig="$OPERATOR_KUBECONFIG" set-context --current --user=operator

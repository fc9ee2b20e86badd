#!/bin/sh
# Prepares the cluster of $KUBECONFIG for policies: gives the operator the rights for them, and creates Deployments of uneven
# sizes in four namespaces, of which three have the label sizing=auto. A user sizes two of the Deployments.
set -eu
kubectl apply --server-side -f dist/policies.yaml

# deployment <number>: a Deployment. The annotations are the simulated usage of each of its pods.
deployment() {
	cat <<-END
		---
		apiVersion: apps/v1
		kind: Deployment
		metadata:
		  name: app-$1
		spec:
		  replicas: $((1 + $1 % 3))
		  selector: {matchLabels: {app: app-$1}}
		  template:
		    metadata:
		      labels: {app: app-$1}
		      annotations:
		        usage.verticalscaler.io/cpu: $((40 + 7 * $1))m
		        usage.verticalscaler.io/memory: $((60 + 5 * $1))Mi
		    spec:
		      terminationGracePeriodSeconds: 1
		      containers:
		      - name: app
		        image: registry.example/app:$1
		        resources:
		          requests: {cpu: 300m, memory: 256Mi}
		          limits: {memory: 512Mi}
	END
}

# namespace <name> <Deployments>
namespace() {
	kubectl create namespace "$1"
	i=0
	while [ $i -lt "$2" ]; do
		deployment $i
		i=$((i + 1))
	done | kubectl apply --server-side -n "$1" -f - >/dev/null
}

namespace shop 18
namespace billing 9
namespace search 3
namespace legacy 5
kubectl label namespace shop billing search sizing=auto

# by_hand <name> <namespace> <Deployment>
by_hand() {
	kubectl apply -n "$2" -f - <<-END
		apiVersion: autoscaling.verticalscaler.io/v1beta1
		kind: VerticalScaler
		metadata: {name: $1}
		spec: {deploymentName: $3, updatePolicy: {updateMode: Recommend}}
	END
}
by_hand mine shop app-0
by_hand app-1 legacy app-1

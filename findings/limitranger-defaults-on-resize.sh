#!/usr/bin/env bash
# Finding: kube-apiserver 1.37.1 adds the defaults of a LimitRange to a pod when the pod is resized.
#
# A pod has no memory limit. A LimitRange with a default limit is created later. A resize of CPU alone, through pods/resize,
# then gives the pod a memory limit, which no resize can remove again. No annotation and no event names it.
#
# The script uses none of the product's code. It ends with 1 if the behaviour has changed, and with 2 if it could not find
# out. CI does not run it.
. "$(dirname "${BASH_SOURCE[0]}")/control-plane.sh"

pods=/api/v1/namespaces/default/pods
resources() { tr -d ' \n' | sed 's/.*"image":"[^"]*","resources":\({"[a-z]*":{[^}]*}\(,"[a-z]*":{[^}]*}\)*}\).*/\1/'; }
api POST $pods '{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"example.com/app:1","resources":{"requests":{"cpu":"100m","memory":"400Mi"}}}]}}' >/dev/null ||
	unclear "no pod can be created"
before=$(api GET $pods/web | resources)
api POST /api/v1/namespaces/default/limitranges '{"metadata":{"name":"later"},"spec":{"limits":[{"type":"Container","default":{"memory":"512Mi"},"defaultRequest":{"memory":"64Mi"}}]}}' >/dev/null ||
	unclear "no LimitRange can be created"
sleep 5 # the API server reads LimitRanges from a cache
after=$(api PATCH $pods/web/resize '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"200m"}}}]}}' | resources) ||
	unclear "the resize is refused"

echo "kube-apiserver $(api GET /version | sed -n 's/.*"gitVersion": "\(.*\)",/\1/p')"
echo "before a resize of CPU from 100m to 200m: $before"
echo "after it:                                 $after"
if [[ $before == *limits* || $after != *'"cpu":"200m"'* ]]; then
	unclear "the pod is not as it should be"
elif [[ $after == *'"limits":{"memory":"512Mi"}'* ]]; then
	echo "As found: LimitRanger adds its default memory limit to a resize that requests CPU alone."
else
	echo "CHANGED: the resize adds no memory limit."
	exit 1
fi

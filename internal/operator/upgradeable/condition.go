// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package upgradeable

import (
	"context"
	"errors"
	"fmt"
	"os"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/operator-framework/operator-lib/conditions"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConditionNameEnv names the environment variable in which OLM tells the name of our
// OperatorCondition. OLM v1 and everything else than OLM leave it unset.
const ConditionNameEnv = "OPERATOR_CONDITION_NAME"

// ErrNoCondition says that OLM has given the operator no OperatorCondition.
var ErrNoCondition = errors.New("OLM has given the operator no OperatorCondition")

// Condition is the condition Upgradeable of our OperatorCondition.
type Condition interface {
	// Get reads it: nil if it is not there, which OLM takes for upgradeable.
	Get(ctx context.Context) (*metav1.Condition, error)
	// Set writes it. The reason must not be empty.
	Set(ctx context.Context, status metav1.ConditionStatus, reason, message string) error
}

// Scheme knows the one kind that a Condition reads and writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := operatorsv2.AddToScheme(scheme); err != nil {
		panic(err) // a kind registered twice is a bug of ours
	}
	return scheme
}

// Open finds the Condition of this process, or says ErrNoCondition.
//
// The client must read live and know the kinds of Scheme: OLM grants get, update and
// patch of the one object, and a cache would list and watch.
//
// In a pod the namespace is that of its service account. A process elsewhere, such as
// one under test, has it from the argument.
func Open(c client.Client, namespace string) (Condition, error) {
	name := os.Getenv(ConditionNameEnv)
	if name == "" {
		return nil, ErrNoCondition
	}
	factory := conditions.InClusterFactory{Client: c}
	key, err := factory.GetNamespacedName()
	if err != nil {
		if namespace == "" {
			return nil, fmt.Errorf("finding the OperatorCondition: %w", err)
		}
		key := types.NamespacedName{Namespace: namespace, Name: name}
		return &condition{client: c, key: key, setter: outside{client: c, key: key}}, nil
	}
	inPod, err := factory.NewCondition(operatorsv2.ConditionType(operatorsv2.Upgradeable))
	if err != nil {
		return nil, fmt.Errorf("finding the OperatorCondition: %w", err)
	}
	return &condition{client: c, key: *key, setter: inPod}, nil
}

// setter is the half of operator-lib's Condition that is used. The other half does not
// tell a condition that is not there from a request that failed.
type setter interface {
	Set(ctx context.Context, status metav1.ConditionStatus, option ...conditions.Option) error
}

type condition struct {
	client client.Client
	key    types.NamespacedName
	setter setter
}

func (c *condition) Get(ctx context.Context) (*metav1.Condition, error) {
	var object operatorsv2.OperatorCondition
	if err := c.client.Get(ctx, c.key, &object); err != nil {
		return nil, fmt.Errorf("reading OperatorCondition %s: %w", c.key, err)
	}
	return meta.FindStatusCondition(object.Spec.Conditions, operatorsv2.Upgradeable), nil
}

func (c *condition) Set(ctx context.Context, status metav1.ConditionStatus, reason, message string) error {
	// OLM and administrators write to the same object.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return c.setter.Set(ctx, status, conditions.WithReason(reason), conditions.WithMessage(message))
	})
	if err != nil {
		return fmt.Errorf("writing OperatorCondition %s: %w", c.key, err)
	}
	return nil
}

// outside sets the condition as operator-lib does, where there is no file that tells
// operator-lib the namespace.
type outside struct {
	client client.Client
	key    types.NamespacedName
}

func (o outside) Set(ctx context.Context, status metav1.ConditionStatus, option ...conditions.Option) error {
	var object operatorsv2.OperatorCondition
	if err := o.client.Get(ctx, o.key, &object); err != nil {
		return err
	}
	c := metav1.Condition{Type: operatorsv2.Upgradeable, Status: status}
	for _, set := range option {
		set(&c)
	}
	meta.SetStatusCondition(&object.Spec.Conditions, c)
	return o.client.Update(ctx, &object)
}

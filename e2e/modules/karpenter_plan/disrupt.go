package main

import (
	"context"
	"sort"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	fakeclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	claims "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

// Disruption is asked for instead of a plan: what the disruption controller does at this moment.
type Disruption struct {
	Now        time.Time `json:"now"`
	SpotToSpot bool      `json:"spotToSpot"`
	// Meanwhile is what changes while a command waits to be validated.
	Meanwhile *Change `json:"meanwhile"`
}

// Change is how a cluster changes: seconds that pass, pods that come, nodes that pods are nominated for, deleted nodes.
type Change struct {
	Seconds   int           `json:"seconds"`
	Pods      []*corev1.Pod `json:"pods"`
	Nominated []string      `json:"nominated"`
	Deleted   []string      `json:"deleted"`
}

// Ordered is the command of the first method that finds one, and what it rests on.
type Ordered struct {
	Reason  string   `json:"reason"`
	Method  string   `json:"method"`
	Nodes   []string `json:"nodes"`
	Claims  []Claim  `json:"claims"`
	Savings float64  `json:"savings"`
	// Allowed is how many nodes of each NodePool may go for each reason, Conditions what is said of each NodeClaim.
	Allowed    map[string]map[string]int `json:"allowed"`
	Conditions map[string][]string       `json:"conditions"`
}

// nodeClass is a class of nodes of the cloud that cases are about.
type nodeClass struct{ v1alpha1.TestNodeClass }

func (n *nodeClass) DeepCopyObject() runtime.Object { return &nodeClass{*n.TestNodeClass.DeepCopy()} }

var ofAWS = schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"}

func init() { scheme.Scheme.AddKnownTypeWithName(ofAWS, &nodeClass{}) }

// cloud sells the types of a case and has nothing to say about drift but what the case says.
type cloud struct {
	cloudprovider.CloudProvider
	offered map[string][]*cloudprovider.InstanceType
	others  []*cloudprovider.InstanceType
	drifted map[string]string
}

func (c *cloud) GetInstanceTypes(_ context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	own, ok := c.offered[pool.Name]
	return append([]*cloudprovider.InstanceType{}, lo.Ternary(ok, own, c.others)...), nil
}

func (c *cloud) IsDrifted(_ context.Context, claim *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	return cloudprovider.DriftReason(c.drifted[claim.Name]), nil
}

func (c *cloud) GetSupportedNodeClasses() []status.Object { return []status.Object{&nodeClass{}} }

// hurried never waits: what happens in the meantime happens at once.
type hurried struct {
	*fakeclock.FakeClock
	meanwhile func()
}

func (h *hurried) After(time.Duration) <-chan time.Time {
	h.meanwhile()
	done := make(chan time.Time, 1)
	done <- h.Now()
	return done
}

func disrupt(ctx context.Context, asked Case) (Answer, error) {
	quiet.Do(func() { log.SetLogger(logr.Discard()) })
	v1.WellKnownLabels.Insert(asked.WellKnown...)
	cloudprovider.ReservationIDLabel = asked.ReservationID
	chosen := settings(asked)
	chosen.FeatureGates.SpotToSpotConsolidation = asked.Disruption.SpotToSpot
	ctx = log.IntoContext(options.ToContext(ctx, chosen), logr.Discard())
	clock := &hurried{FakeClock: fakeclock.NewFakeClock(asked.Disruption.Now)}
	kube, err := living(asked)
	if err != nil {
		return Answer{}, err
	}
	sells := &cloud{offered: map[string][]*cloudprovider.InstanceType{}, others: instanceTypes(asked.Types), drifted: map[string]string{}}
	for pool, own := range asked.TypesOf {
		sells.offered[pool] = instanceTypes(own)
	}
	for _, machine := range asked.Nodes {
		if machine.NodeClaim != nil {
			sells.drifted[machine.NodeClaim.Name] = machine.Drifted
		}
	}
	spent := cost.NewClusterCost(ctx, sells, kube)
	order := Ordered{Nodes: []string{}, Claims: []Claim{}, Allowed: map[string]map[string]int{}, Conditions: map[string][]string{}}
	if err := conditions(ctx, clock, kube, sells, spent, asked, order.Conditions); err != nil {
		return Answer{}, err
	}
	cluster := state.NewCluster(clock, kube, sells)
	if err := fill(ctx, cluster, asked); err != nil {
		return Answer{}, err
	}
	byName := map[string]string{}
	for _, machine := range asked.Nodes {
		if machine.NodeClaim != nil && machine.Node != nil {
			byName[machine.Node.Name] = machine.NodeClaim.Status.ProviderID
			if machine.Nominated {
				cluster.NominateNodeForPod(ctx, machine.NodeClaim.Status.ProviderID)
			}
		}
	}
	clock.meanwhile = changing(ctx, clock, kube, cluster, asked.Disruption.Meanwhile, byName)
	recorder := events.NewRecorder(record.NewFakeRecorder(1 << 16))
	provisioner := provisioning.NewProvisioner(kube, recorder, sells, cluster, clock, nil)
	queue := disruption.NewQueue(kube, recorder, cluster, clock, provisioner)
	for _, method := range disruption.NewMethods(clock, cluster, kube, provisioner, sells, recorder, queue) {
		reason := string(method.Reason())
		candidates, totals, err := disruption.GetCandidatesWithTotals(
			ctx, cluster, kube, recorder, clock, sells, method.ShouldDisrupt, method.Class(), queue, spent)
		if err != nil {
			return Answer{}, err
		}
		allowed, err := disruption.BuildDisruptionBudgetMapping(ctx, cluster, clock, kube, sells, recorder, method.Reason())
		if err != nil {
			return Answer{}, err
		}
		if _, said := order.Allowed[reason]; !said {
			order.Allowed[reason] = lo.Assign(allowed)
		}
		if order.Reason != "" || len(candidates) == 0 {
			continue
		}
		if setter, ok := method.(disruption.NodePoolTotalsSetter); ok {
			setter.SetNodePoolTotals(totals)
		}
		commands, err := method.ComputeCommands(ctx, allowed, candidates...)
		if err != nil {
			return Answer{}, err
		}
		for _, command := range commands {
			if command.Decision() == disruption.NoOpDecision {
				continue
			}
			order.Reason, order.Method = reason, method.ConsolidationType()
			order.Nodes, order.Savings = command.SourceNodeNames(), command.EstimatedSavings()
			for _, replacement := range command.Replacements {
				order.Claims = append(order.Claims, claimed(replacement.NodeClaim))
			}
			break
		}
	}
	return Answer{ID: asked.ID, Ordered: &order}, nil
}

// conditions lets Karpenter say of each NodeClaim whether it has drifted and may be consolidated.
func conditions(
	ctx context.Context, clock *hurried, kube client.Client, sells *cloud, spent *cost.ClusterCost, asked Case, said map[string][]string,
) error {
	controller := claims.NewController(clock, kube, sells)
	for _, machine := range asked.Nodes {
		if machine.NodeClaim == nil {
			continue
		}
		if err := spent.UpdateNodeClaim(ctx, machine.NodeClaim); err != nil {
			return err
		}
		found := &v1.NodeClaim{}
		if err := kube.Get(ctx, client.ObjectKeyFromObject(machine.NodeClaim), found); err != nil {
			return err
		}
		if _, err := controller.Reconcile(ctx, found); err != nil {
			return err
		}
		kinds := []string{}
		for i, condition := range found.Status.Conditions {
			switch condition.Type {
			case v1.ConditionTypeConsolidatable:
				kinds = append(kinds, condition.Type)
			case v1.ConditionTypeDrifted:
				kinds = append(kinds, condition.Type+": "+condition.Reason)
				found.Status.Conditions[i].LastTransitionTime = machine.DriftedAt
			}
		}
		sort.Strings(kinds)
		said[machine.NodeClaim.Name] = kinds
		*machine.NodeClaim = *found
	}
	return nil
}

// changing is what happens once, while the first command waits.
func changing(
	ctx context.Context, clock *hurried, kube client.Client, cluster *state.Cluster, change *Change, byName map[string]string,
) func() {
	return func() {
		if change == nil {
			return
		}
		now := *change
		change = nil
		clock.Step(time.Duration(now.Seconds) * time.Second)
		for _, pod := range now.Pods {
			unscheduled(pod)
			lo.Must0(kube.Create(ctx, pod))
			if pod.Spec.NodeName != "" {
				lo.Must0(cluster.UpdatePod(ctx, pod))
			}
		}
		for _, name := range now.Nominated {
			cluster.NominateNodeForPod(ctx, byName[name])
		}
		for _, name := range now.Deleted {
			cluster.MarkForDeletion(byName[name])
		}
	}
}

func unscheduled(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable})
	}
}

// living holds all objects of the case in memory, with the indexes that Karpenter asks for.
func living(asked Case) (client.Client, error) {
	objects, err := decoded(asked.Objects)
	if err != nil {
		return nil, err
	}
	for _, pod := range asked.Pods {
		unscheduled(pod)
		objects = append(objects, pod)
	}
	for _, machine := range asked.Nodes {
		if machine.Node != nil {
			objects = append(objects, machine.Node)
		}
		if machine.NodeClaim != nil {
			objects = append(objects, machine.NodeClaim)
		}
	}
	for _, pool := range asked.NodePools {
		for _, kind := range []string{v1.ConditionTypeValidationSucceeded, v1.ConditionTypeNodeClassReady} {
			pool.StatusConditions().SetTrue(kind)
		}
		objects = append(objects, pool)
	}
	for _, pod := range asked.DaemonPods {
		objects = append(objects, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			Spec:       appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: pod.Spec}},
		})
	}
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&v1.NodeClaim{}, &v1.NodePool{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
		WithIndex(&v1.NodeClaim{}, "status.providerID", func(o client.Object) []string { return []string{o.(*v1.NodeClaim).Status.ProviderID} }).
		WithIndex(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}
		}).Build(), nil
}

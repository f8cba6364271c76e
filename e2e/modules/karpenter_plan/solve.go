package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	"go.uber.org/multierr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocks "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	nodepools "sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

var quiet sync.Once

func solve(ctx context.Context, asked Case) (Answer, error) {
	quiet.Do(func() { log.SetLogger(logr.Discard()) })
	v1.WellKnownLabels.Insert(asked.WellKnown...)
	cloudprovider.ReservationIDLabel = asked.ReservationID
	ctx = log.IntoContext(options.ToContext(ctx, settings(asked)), logr.Discard())
	kube, err := kubeClient(asked)
	if err != nil {
		return Answer{}, err
	}
	clock := clocks.RealClock{}
	cluster := state.NewCluster(clock, kube, nil)
	if err := fill(ctx, cluster, asked); err != nil {
		return Answer{}, err
	}
	pending := lo.Filter(asked.Pods, func(p *corev1.Pod, _ int) bool { return p.Spec.NodeName == "" })
	volumes := map[types.UID][]requirements.Requirements{}
	for _, pod := range pending {
		found, err := scheduling.NewVolumeTopology(kube).GetRequirements(ctx, pod)
		if err != nil {
			return Answer{}, err
		}
		if len(found) != 0 {
			volumes[pod.UID] = found
		}
	}
	pools := lo.Filter(asked.NodePools, func(p *v1.NodePool, _ int) bool { return p.Spec.Replicas == nil })
	nodepools.OrderByWeight(pools)
	offered := map[string][]*cloudprovider.InstanceType{}
	for _, pool := range pools {
		own, ok := asked.TypesOf[pool.Name]
		offered[pool.Name] = instanceTypes(lo.Ternary(ok, own, asked.Types))
	}
	nodes := cluster.DeepCopyNodes().Active()
	chosen := policies(asked)
	topology, err := scheduling.NewTopology(ctx, kube, cluster, nodes, pools, offered, pending, chosen...)
	if err != nil {
		return Answer{}, err
	}
	recorder := events.NewRecorder(record.NewFakeRecorder(1 << 16))
	scheduler := scheduling.NewScheduler(
		ctx, kube, pools, cluster, nodes, topology, offered, asked.DaemonPods, recorder, clock, volumes, nil, chosen...)
	results, err := scheduler.Solve(ctx, pending)
	if err != nil {
		return Answer{}, err
	}
	results = results.TruncateInstanceTypes(ctx, lo.Ternary(asked.MaxInstanceTypes == 0, scheduling.MaxInstanceTypes, asked.MaxInstanceTypes))
	return written(asked.ID, results), nil
}

func settings(asked Case) *options.Options {
	return &options.Options{
		PreferencePolicy:  lo.Ternary(asked.IgnorePreferences, options.PreferencePolicyIgnore, options.PreferencePolicyRespect),
		MinValuesPolicy:   lo.Ternary(asked.BestEffort, options.MinValuesPolicyBestEffort, options.MinValuesPolicyStrict),
		IgnoreDRARequests: true,
		FeatureGates:      options.FeatureGates{ReservedCapacity: true},
	}
}

func policies(asked Case) []scheduling.Options {
	chosen := []scheduling.Options{scheduling.NumConcurrentReconciles(1), scheduling.MinValuesPolicy(settings(asked).MinValuesPolicy)}
	if !asked.ReservedFallback {
		chosen = append(chosen, scheduling.DisableReservedCapacityFallback)
	}
	if asked.IgnorePreferences {
		chosen = append(chosen, scheduling.IgnorePreferences)
	}
	return chosen
}

// kubeClient holds all objects of the case in memory.
func kubeClient(asked Case) (client.Client, error) {
	var objects []client.Object
	for _, pod := range asked.Pods {
		objects = append(objects, pod)
	}
	for _, machine := range asked.Nodes {
		if machine.Node != nil {
			objects = append(objects, machine.Node)
		}
	}
	further, err := decoded(asked.Objects)
	if err != nil {
		return nil, err
	}
	objects = append(objects, further...)
	byNode := func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", byNode).Build(), nil
}

func decoded(listed []json.RawMessage) ([]client.Object, error) {
	var objects []client.Object
	for _, raw := range listed {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, err
		}
		known, ok := object.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T cannot be looked up", object)
		}
		objects = append(objects, known)
	}
	return objects, nil
}

// fill tells Karpenter's state of the cluster what there is, as its informers would.
func fill(ctx context.Context, cluster *state.Cluster, asked Case) error {
	var leaving []string
	for _, machine := range asked.Nodes {
		if machine.NodeClaim != nil {
			cluster.UpdateNodeClaim(machine.NodeClaim)
			if machine.Deleting {
				leaving = append(leaving, machine.NodeClaim.Status.ProviderID)
			}
		}
		if machine.Node != nil {
			if err := cluster.UpdateNode(ctx, machine.Node); err != nil {
				return err
			}
		}
	}
	for _, pod := range asked.Pods {
		if pod.Spec.NodeName != "" {
			if err := cluster.UpdatePod(ctx, pod); err != nil {
				return err
			}
		}
	}
	cluster.MarkForDeletion(leaving...)
	return nil
}

func instanceTypes(listed []Type) []*cloudprovider.InstanceType {
	return lo.Map(listed, func(one Type, _ int) *cloudprovider.InstanceType {
		overhead := corev1.ResourceList{}
		for name, whole := range one.Capacity {
			left, ok := one.Allocatable[name]
			if ok && whole.Cmp(left) != 0 {
				taken := whole.DeepCopy()
				taken.Sub(left)
				overhead[name] = taken
			}
		}
		return &cloudprovider.InstanceType{
			Name:         one.Name,
			Requirements: labelled(one.Labels, one.Absent),
			Capacity:     one.Capacity,
			Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: overhead},
			Offerings: lo.Map(one.Offerings, func(offer Offering, _ int) *cloudprovider.Offering {
				return &cloudprovider.Offering{
					Requirements:        labelled(offer.Labels, offer.Absent),
					Price:               offer.Price,
					Available:           offer.Available,
					ReservationCapacity: offer.Reservations,
				}
			}),
		}
	})
}

func labelled(having map[string][]string, absent []string) requirements.Requirements {
	found := requirements.NewRequirements()
	for key, values := range having {
		found.Add(requirements.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	for _, key := range absent {
		found.Add(requirements.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
	}
	return found
}

func written(id string, results scheduling.Results) Answer {
	answer := Answer{ID: id, Claims: []Claim{}, Nominations: map[string][]string{}, Refused: map[string][]string{}}
	for _, claim := range results.NewNodeClaims {
		answer.Claims = append(answer.Claims, claimed(claim))
	}
	for _, node := range results.ExistingNodes {
		if len(node.Pods) != 0 {
			answer.Nominations[node.Name()] = names(node.Pods)
		}
	}
	for pod, err := range results.PodErrors {
		answer.Refused[name(pod)] = kinds(err)
	}
	return answer
}

// claimed is a planned NodeClaim as answers have it.
func claimed(claim *scheduling.NodeClaim) Claim {
	left := lo.Map(claim.InstanceTypeOptions, func(it *cloudprovider.InstanceType, _ int) string { return it.Name })
	sort.Strings(left)
	requests := map[string]string{}
	for name, amount := range claim.Spec.Resources.Requests {
		requests[string(name)] = amount.String()
	}
	wanted := claim.Requirements.NodeSelectorRequirements()
	sort.Slice(wanted, func(a, b int) bool {
		if wanted[a].Key != wanted[b].Key {
			return wanted[a].Key < wanted[b].Key
		}
		return wanted[a].Operator < wanted[b].Operator
	})
	return Claim{claim.NodePoolName, names(claim.Pods), left, requests, wanted}
}

func names(pods []*corev1.Pod) []string {
	return lo.Map(pods, func(p *corev1.Pod, _ int) string { return name(p) })
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// kinds are the kinds of refusal in an error, each once.
func kinds(err error) []string {
	found := map[string]bool{}
	if scheduling.IsReservedOfferingError(err) {
		found["reserved"] = true
	}
	for _, one := range multierr.Errors(err) {
		text := one.Error()
		kind := "other: " + text
		for _, known := range []struct{ part, kind string }{
			{"did not tolerate taint", "taint"},
			{"incompatible volume requirements", "volume"},
			{"incompatible requirements", "requirements"},
			{"unsatisfiable topology constraint", "topology"},
			{"exceed limits", "limits"},
			{"node limits", "limits"},
			{"minValues", "minValues"},
			{"no instance type", "instance type"},
			{"reserved offering", "reserved"},
			{"filtered out all available", "no pool"},
			{" not in ", "topology"},
		} {
			if strings.Contains(text, known.part) {
				kind = known.kind
				break
			}
		}
		found[kind] = true
	}
	listed := lo.Keys(found)
	sort.Strings(listed)
	return listed
}

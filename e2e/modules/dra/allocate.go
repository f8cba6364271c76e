package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const budget = 10 * time.Second

// allocation is a question to the allocator: these claims on this node, where others hold devices already.
type allocation struct {
	Features structured.Features          `json:"features"`
	Node     v1.Node                      `json:"node"`
	Classes  []*resourceapi.DeviceClass   `json:"classes"`
	Slices   []*resourceapi.ResourceSlice `json:"slices"`
	Claims   []*resourceapi.ResourceClaim `json:"claims"`
	Held     []*resourceapi.ResourceClaim `json:"held"`
}

// allocated is its answer. Outcome: "allocated", "infeasible", "failed-on-node" (this node alone), "error", "timeout".
type allocated struct {
	Outcome string                         `json:"outcome"`
	Error   string                         `json:"error,omitempty"`
	Results []resourceapi.AllocationResult `json:"results,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("device class %s not found", name)
}

var caches = map[bool]*cel.Cache{}

func cache(features structured.Features) *cel.Cache {
	if caches[features.ListTypeAttributes] == nil {
		caches[features.ListTypeAttributes] = cel.NewCache(
			1000, cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: features.ListTypeAttributes})
	}
	return caches[features.ListTypeAttributes]
}

// state is what the claims that have an allocation hold, as the scheduler's plugin counts it.
func state(held []*resourceapi.ResourceClaim) structured.AllocatedState {
	result := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range held {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				result.AllocatedDevices.Insert(id)
				continue
			}
			result.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			if r.ConsumedCapacity != nil {
				result.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			}
		}
	}
	return result
}

func allocate(ctx context.Context, a *allocation) allocated {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, a.Features, state(a.Held), classes(a.Classes), a.Slices, cache(a.Features))
	if err != nil {
		return allocated{Outcome: "error", Error: err.Error()}
	}
	results, err := allocator.Allocate(ctx, &a.Node, a.Claims)
	switch {
	case ctx.Err() != nil:
		return allocated{Outcome: "timeout"}
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return allocated{Outcome: "failed-on-node", Error: err.Error()}
	case err != nil:
		return allocated{Outcome: "error", Error: err.Error()}
	case results == nil:
		return allocated{Outcome: "infeasible"}
	}
	return allocated{Outcome: "allocated", Results: results}
}
